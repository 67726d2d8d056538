"""The engine: what runs next (`scheduler`), one model call (`runner`), and the thread that turns (`loop`)."""
