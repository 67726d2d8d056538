from mlxcel.kv.size import BLOCK_TOKENS, KVSize


def test_bytes_come_in_whole_blocks() -> None:
    size = KVSize(bytes_per_token=3)
    blocks = [size.bytes_for(n) // (3 * BLOCK_TOKENS) for n in (0, 1, 255, 256, 257, 512, 513)]
    assert blocks == [0, 1, 1, 1, 2, 2, 3]


def test_a_window_bounds_the_tokens_and_state_without_a_length_is_added_once() -> None:
    size = KVSize(bytes_per_token=1, fixed_bytes=7, window_tokens=512)
    assert [size.bytes_for(n) for n in (0, 1, 512, 100_000)] == [7, 263, 519, 519]
