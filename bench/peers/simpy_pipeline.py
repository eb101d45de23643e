# SPDX-License-Identifier: Apache-2.0
"""The pipeline of bench/peers/ours.cpp in SimPy 3; bench/peers/run calls it.

    simpy_pipeline.py FILE events|stores

Prints the makespan and the processor time of Environment.run() and of making the processes before it.
A process per rank walks its row, a timeout per action. A link carries one message after the other.
Times are whole nanoseconds, as Python's integers.

events: a message is one event, scheduled at its arrival. Whoever comes first, sender or receiver,
    leaves something for the other: the timeout of the transfer, or an event that the sender
    schedules. The fastest form that was found.
stores: SimPy's usual form, as its example of a cable with latency: a Store per link, and a process
    per message that waits for the transfer and puts it there.
"""
import gc
import sys
import time
from collections import deque

import simpy


def read(path):
    """Rows of (kind, value) and links of (latency, how long a message occupies it)."""
    with open(path, encoding="ascii") as file:
        lines = [line.split() for line in file]
    if lines[0] != ["pipetwin-peers", "1"]:
        raise SystemExit(f"{path}: found {lines[0]}, expected pipetwin-peers 1")
    rank_count, link_count = int(lines[3][1]), int(lines[4][1])
    links = [(int(line[3]), int(line[4])) for line in lines[5:5 + link_count]]
    at = 5 + link_count
    rows = []
    for _ in range(rank_count):
        length = int(lines[at][1])
        rows.append([(kind, int(value)) for kind, value in lines[at + 1:at + 1 + length]])
        at += 1 + length
    return rows, links


class Message(simpy.Event):
    """What a receiver waits for before it is known when the message arrives."""

    def arrive_after(self, delay):
        # As simpy.Timeout does: one entry in the queue. Event.succeed() would need a second event.
        self._ok = True
        self._value = None
        self.env.schedule(self, delay=delay)


def with_events(env, rows, links):
    free_at = [0] * len(links)
    sent = [deque() for _ in links]  # messages that no receiver has asked for yet
    awaited = [None] * len(links)  # the message that a receiver waits for
    timeout = env.timeout

    def walk(row):
        for kind, value in row:
            if kind == "C":
                yield timeout(value)
            elif kind == "R":
                if sent[value]:
                    yield sent[value].popleft()
                else:
                    awaited[value] = Message(env)
                    yield awaited[value]
            else:
                now = env.now
                latency, occupied = links[value]
                free = free_at[value]
                free_at[value] = free = (free if free > now else now) + occupied
                message = awaited[value]
                if message is None:
                    sent[value].append(timeout(free + latency - now))
                else:
                    awaited[value] = None
                    message.arrive_after(free + latency - now)

    for row in rows:
        env.process(walk(row))


def with_stores(env, rows, links):
    free_at = [0] * len(links)
    stores = [simpy.Store(env) for _ in links]

    def carry(store, delay):
        yield env.timeout(delay)
        store.put(None)

    def walk(row):
        for kind, value in row:
            if kind == "C":
                yield env.timeout(value)
            elif kind == "R":
                yield stores[value].get()
            else:
                latency, occupied = links[value]
                free_at[value] = max(free_at[value], env.now) + occupied
                env.process(carry(stores[value], free_at[value] + latency - env.now))

    for row in rows:
        env.process(walk(row))


FORMS = {"events": with_events, "stores": with_stores}


def main():
    if len(sys.argv) != 3 or sys.argv[2] not in FORMS:
        raise SystemExit("usage: simpy_pipeline.py FILE events|stores")
    rows, links = read(sys.argv[1])
    env = simpy.Environment()
    gc.collect()
    gc.disable()  # as timeit does
    begin = time.process_time()
    FORMS[sys.argv[2]](env, rows, links)
    made = time.process_time()
    env.run()
    end = time.process_time()
    print(f"makespan_ns {env.now} seconds {end - made:.9f} made_in_seconds {made - begin:.9f}")


main()
