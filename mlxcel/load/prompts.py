"""Prompts that differ from the first word on, so that no prefix cache helps. Knows no tokenizer."""

import random

_TEXT = """
able about above across after again against almost along already also always among another answer any
around autumn back ball bank bear before begin behind below best better between big bird black blue
board boat body book both bread bring brother build burn call care carry catch change child city class
clear close cloud cold come cook corner count cover cross cup dance dark day deep door down draw dream
drive drop dry each early earth east easy eat edge eight end enough even evening ever every face fall
family far farm fast father feel few field fire first fish five floor flower fly follow food foot forest
form four friend front full garden girl give glass go gold good grass great green ground grow hair half
hand happy hard hat head hear heart heavy help high hill hold home horse hour house hundred ice island
join jump keep kind king kitchen know lake land large last late laugh lead leaf learn leave left letter
life light line listen little live long look lose love make man many map market mean milk minute moon
more morning most mother mountain mouth move much music name near need never new next night nine north
nose number ocean often old one open orange order other over own page paint paper part party pass path
peace people phone picture piece place plain plant play point
"""
WORDS = tuple(_TEXT.split())


class Prompts:
    """The prompts of one run. Equal seeds give equal prompts; prompt `number` differs from all others
    as soon as `n_words` words can tell them apart (2 words do for 50,000)."""

    def __init__(self, *, seed: int) -> None:
        self._seed = seed
        self._words = random.Random(seed).sample(WORDS, len(WORDS))

    def draw(self, number: int, *, n_words: int) -> str:
        """The first two words or more spell the number, its last digit in front; the rest is random."""
        spelled: list[str] = []
        while number or len(spelled) < 2:
            number, digit = divmod(number, len(WORDS))
            spelled.append(self._words[digit])
        rest = random.Random(f"{self._seed} {' '.join(spelled)}")
        return " ".join([*spelled, *rest.choices(WORDS, k=max(0, n_words - len(spelled)))][:n_words])
