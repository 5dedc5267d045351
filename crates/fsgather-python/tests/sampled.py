"""Calls functions of its own as fast as it can while another thread looks at its stack, and checks each stack that was seen.

Each line that calls says whom: ``# -> walk``. So a stack that cannot have been is found out: a function that is not called in the line of
the one before it, or a line that is not one of its function. Takes how many looks there are to be.
"""

from __future__ import annotations

import sys
import threading
from typing import Any, Iterator

from fsgather import _fsgather

done = threading.Event()
seen: list[Any] = []


def leaf(value: int) -> int:
    total = value
    for step in (1, 2, 3):
        total += step
    return total


def walk(depth: int) -> int:
    if depth == 0:
        return leaf(1)  # -> leaf
    return walk(depth - 1) + 1  # -> walk


def numbers(count: int) -> Iterator[int]:
    for number in range(count):
        yield leaf(number)  # -> leaf


class Thing:
    def __init__(self, value: int) -> None:
        self.value = leaf(value)  # -> leaf

    def __add__(self, other: Any) -> int:
        return self.value + walk(2)  # -> walk

    @property
    def twice(self) -> int:
        return 2 * leaf(self.value)  # -> leaf


def fail(depth: int) -> None:
    if depth:
        fail(depth - 1)  # -> fail
    raise ValueError(depth)


def mend() -> int:
    try:
        fail(3)  # -> fail
    except ValueError:
        return leaf(0)  # -> leaf
    return 0


def größe(value: int) -> int:
    return leaf(value)  # -> leaf


def sort() -> Any:
    return sorted([3, 1, 2], key=lambda value: größe(value))  # -> <lambda> größe


def all_of_it() -> None:
    walk(5)  # -> walk
    sum(numbers(4))  # -> numbers
    sum(leaf(number) for number in (1, 2))  # -> <genexpr> leaf
    Thing(1) + 2  # -> __init__ __add__
    Thing(2).twice  # -> __init__ twice
    mend()  # -> mend
    sort()  # -> sort
    [größe(number) for number in (1, 2)]  # -> größe <listcomp>


def main() -> None:
    while not done.is_set():  # -> is_set
        all_of_it()  # -> all_of_it


def look(count: int) -> None:
    seen.extend(_fsgather.sample_stacks(count))
    done.set()


def wrong(stack: list[tuple[str, int, str]]) -> str:
    """What is wrong with a stack, if anything is."""
    for (file, line, caller), (other, _, function) in zip(stack, stack[1:]):
        if file != other or file != __file__ or SOURCE[line - 1] == "main()":
            continue
        if function not in SOURCE[line - 1].partition("# -> ")[2].split():
            return f"{caller} does not call {function} in line {line}"
    for file, line, function in stack:
        # Headers belong to the function as well; those of lambdas and the like are a part of another one.
        if file == __file__ and line and function[0] != "<" and not START[function] <= line <= END[function]:
            return f"line {line} is not of {function}"
    return ""


with open(__file__, encoding="utf-8") as text:
    SOURCE = text.read().splitlines()
START, END = {}, {}
name = ""
for number, line in enumerate(SOURCE, 1):
    head = line.strip()
    if head.startswith("def "):
        name = head[4 : head.index("(")]
        # A function that has not begun yet is in the line of its decorator.
        START[name] = number - SOURCE[number - 2].strip().startswith("@")
    if name and line and (not line[0].isalpha() or head.startswith("def ")):
        END[name] = number

thread = threading.Thread(target=look, args=(int(sys.argv[1]),))
thread.start()
main()
thread.join()
times = 0
for stack, count in seen:
    times += count
    problem = wrong(stack)
    if problem:
        sys.exit(f"{problem}: {stack}")
assert times == int(sys.argv[1]), times
named = sum(count for stack, count in seen if stack)
depths = {len(stack) for stack, _ in seen}
outer = ("<module>", "all_of_it", "main", "walk")
cut = [stack for stack, _ in seen if stack and stack[0][2] not in outer]
assert not cut, cut
print(f"{sys.version.split()[0]}: {times} looks, {named} with functions, {len(seen)} stacks, depths {sorted(depths)}")
