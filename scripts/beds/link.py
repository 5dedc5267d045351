#!/usr/bin/env python3
"""A switch that is slow, loses packets, or carries them in one direction only: `link.py SETTINGS COUNT`, as root.

Makes network cards `cable1` to `cableCOUNT` in the network namespace it is started in, prints `ready`, and carries packets
between them until its standard input ends; whoever wants a card for a host moves it there. It needs nothing of the kernel
but /dev/net/tun, where netem is not in every kernel.

SETTINGS is a file that is read anew whenever it changes. A line is `FROM TO [WORD=NUMBER]...`; FROM and TO are the number of a
card, or *. The last line that fits a packet counts:
  delay   milliseconds that it takes, in this direction
  loss    of a hundred packets so many vanish
  rate    kilobits a second that leave FROM; what would wait longer than a second vanishes
  size    longer packets vanish, without a word to who has sent them
"""

import fcntl
import heapq
import os
import random
import select
import struct
import sys
import time

TUNSETIFF, TAP, BARE = 0x400454CA, 0x0002, 0x1000
HEADER = 14
LONGEST_QUEUE = 1.0


def card(name):
    tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    fcntl.ioctl(tun, TUNSETIFF, struct.pack("16sH22x", name.encode(), TAP | BARE))
    return tun


class Settings:
    def __init__(self, path):
        self.path, self.seen, self.lines = path, None, []

    def look(self):
        found = os.stat(self.path)
        seen = (found.st_ino, found.st_mtime_ns, found.st_size)
        if seen != self.seen:
            with open(self.path) as file:
                self.lines = [line.split() for line in file if line.strip()]
            self.seen = seen

    def between(self, source, target):
        fitting = {}
        for from_, to, *words in self.lines:
            if from_ in ("*", str(source)) and to in ("*", str(target)):
                fitting = {name: float(value) for name, value in (word.split("=") for word in words)}
        return fitting


class Switch:
    def __init__(self, settings, cards):
        self.settings, self.cards = settings, cards
        self.home = {}
        self.free_at = dict.fromkeys(cards, 0.0)
        self.due = []
        self.count = 0
        self.chance = random.Random(1)

    def take(self, source, packet, now):
        """Notes when and where a packet comes out."""
        to, from_ = packet[:6], packet[6:12]
        self.home[from_] = source
        home = self.home.get(to)
        targets = [home] if home else [other for other in self.cards if other != source]
        for target in targets:
            how = self.settings.between(source, target)
            sent = now
            if "rate" in how:
                sent = max(now, self.free_at[source])
                if sent - now > LONGEST_QUEUE:
                    continue
                sent += len(packet) * 8 / 1000 / how["rate"]
                self.free_at[source] = sent
            is_lost = self.chance.random() * 100 < how.get("loss", 0)
            if is_lost or len(packet) - HEADER > how.get("size", 1e9):
                continue
            self.count += 1
            heapq.heappush(self.due, (sent + how.get("delay", 0) / 1000, self.count, target, packet))

    def hand_out(self, now):
        while self.due and self.due[0][0] <= now:
            _, _, target, packet = heapq.heappop(self.due)
            try:
                os.write(self.cards[target], packet)
            except OSError:
                pass  # A host that is down, or has enough.

    def patience(self, now):
        return min(max(self.due[0][0] - now, 0), 0.02) if self.due else 0.02


def main():
    settings = Settings(sys.argv[1])
    cards = {number: card(f"cable{number}") for number in range(1, int(sys.argv[2]) + 1)}
    switch = Switch(settings, cards)
    numbers = {tun: number for number, tun in cards.items()}
    print("ready", flush=True)
    while True:
        readable, _, _ = select.select([*numbers, 0], [], [], switch.patience(time.monotonic()))
        settings.look()
        for found in readable:
            if found == 0:
                return
            # Some at a time, so that what is due does not wait for a sender without end.
            for _ in range(32):
                try:
                    packet = os.read(found, 65536)
                except BlockingIOError:
                    break
                except OSError:
                    break  # A card that is not up.
                switch.take(numbers[found], packet, time.monotonic())
        switch.hand_out(time.monotonic())


if __name__ == "__main__":
    main()
