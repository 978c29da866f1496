"""Keys and values are what concatenation gives, whoever shares their memory."""

import torch
from torch import Tensor

from vestige.models.key_value_cache import KeysAndValues


def drawn(rows: int, tokens: int, chance: torch.Generator) -> tuple[Tensor, Tensor]:
    keys, values = torch.randn(2, rows, 2, tokens, 3, generator=chance)
    return keys, values


def test_any_tree_of_continuations_is_what_concatenation_gives() -> None:
    chance = torch.Generator().manual_seed(0)
    keys, values = drawn(4, 2, chance)
    known = [(KeysAndValues.of(keys, values), keys, values)]
    for _ in range(300):
        held, keys, values = known[int(torch.randint(len(known), (), generator=chance))]
        n = len(keys)
        match int(torch.randint(4, (), generator=chance)):
            case 0:
                index = torch.randint(n, (3,), generator=chance)
            case 1:
                index = slice(0, max(1, n - 1))
            case _:
                index = slice(None)
        keys, values = keys[index], values[index]
        more = drawn(len(keys), int(torch.randint(1, 4, (), generator=chance)), chance)
        keys, values = torch.cat([keys, more[0]], 2), torch.cat([values, more[1]], 2)
        known.append((held[index].extended(*more), keys, values))
    assert all(torch.equal(held.read()[0], keys) for held, keys, _ in known)
    assert all(torch.equal(held.read()[1], values) for held, _, values in known)


def test_one_text_that_goes_on_is_seldom_copied() -> None:
    chance = torch.Generator().manual_seed(0)
    held = KeysAndValues.of(*drawn(3, 1, chance))
    places = set()
    for _ in range(64):
        held = held.extended(*drawn(3, 1, chance))
        places.add(held.keys.data_ptr())
    assert held.length == 65
    assert len(places) <= 6
    assert held.nbytes <= 2 * 2 * 3 * 2 * 65 * 3 * 4


def test_choosing_rows_copies_nothing_before_they_read_on() -> None:
    held = KeysAndValues.of(*drawn(6, 5, torch.Generator().manual_seed(0)))
    chosen = held[torch.tensor([3, 3, 1])]
    assert chosen.keys is held.keys
    assert chosen.nbytes == held.nbytes // 2
