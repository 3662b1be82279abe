"""Write what the golden net expects."""

from tests.golden import EXPECTED, net

if __name__ == "__main__":
    EXPECTED.mkdir(exist_ok=True)
    for name, content in net().items():
        (EXPECTED / name).write_text(content(), encoding="utf-8")
