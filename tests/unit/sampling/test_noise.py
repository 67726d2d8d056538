from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mlxcel.sampling.noise import token_coin, token_key

# Source: Vigna's splitmix64.c, the first outputs for these seeds.
PUBLISHED = {
    1234567: [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ],
    0: [16294208416658607535, 7960286522194355700, 487617019471545679],
}


def test_a_rows_keys_are_the_published_outputs_of_splitmix64() -> None:
    for seed, outputs in PUBLISHED.items():
        keys = [token_key(seed, n) for n in range(len(outputs))]
        assert [high << 32 | low for high, low in keys] == outputs


@given(seed=st.integers(0, 2**63 - 1), n_generated=st.integers(0, 2**31))
def test_a_key_is_two_words_of_32_bits(seed: int, n_generated: int) -> None:
    assert all(0 <= word < 2**32 for word in token_key(seed, n_generated))
    assert token_key(seed, n_generated) != token_key(seed, n_generated + 1)


def test_coins_are_uniform_and_have_nothing_to_do_with_the_keys() -> None:
    coins = [token_coin(seed, n) for seed in range(50) for n in range(100)]
    assert all(0 <= coin < 1 for coin in coins)
    counts = [sum(int(coin * 10) == tenth for coin in coins) for tenth in range(10)]
    assert sum((count - 500) ** 2 / 500 for count in counts) < 28  # 9 degrees of freedom: a one in 1000 chance
    keys = [token_key(seed, n)[0] / 2**32 for seed in range(50) for n in range(100)]
    covariance = sum((coin - 0.5) * (key - 0.5) for coin, key in zip(coins, keys, strict=True)) / len(coins)
    assert abs(covariance) < 4 / 12 / len(coins) ** 0.5
