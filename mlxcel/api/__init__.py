"""HTTP: shapes on the wire (`wire`), routes (`app`), and the process's life (`server`)."""
