"""The network between simulated machines: names, ports, delays and faults.

A `Fabric` connects machines; each process reaches it through its own `SimNetwork`, which is the network port. The
fabric's `Weather` holds delays and fault probabilities; links can be blocked in one or both directions. As with TCP, a
partition delays bytes rather than losing them: they arrive after it heals, if the connection still exists. A machine
that lost power does not respond; after its next boot it resets connections that it does not know.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections import deque
from collections.abc import Callable
from contextvars import copy_context
from random import Random
from typing import Any, Protocol

import msgspec

from strandline.runtime.network import Listener, ProtocolFactory
from strandline.simulation.loop import VirtualLoop
from strandline.simulation.process import Process, current_process
from strandline.simulation.trace import Trace
from strandline.simulation.transport import SimTransport

_LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")
_EVERYWHERE = ("", "0.0.0.0", "::")
_SYN_RETRIES_S = (0, 1, 2, 4, 8, 16, 32, 64)  # as Linux: a connection attempt times out after about two minutes


class Weather(msgspec.Struct):
    """Network conditions: delays in microseconds, fault probabilities between 0 and 1."""

    least_delay_us: int = 20
    most_delay_us: int = 200
    slow_chance: float = 0.0
    """That a delivery takes `slow_delay_us` longer."""
    slow_delay_us: int = 50_000
    split_chance: float = 0.2
    """That a chunk of data arrives in several pieces."""
    reset_chance: float = 0.0
    """That a connection is reset in the middle of a chunk of data."""
    refuse_chance: float = 0.0
    """That a listener refuses the connection, as with a full backlog."""
    window_bytes: int = 256 * 1024


class Tap(Protocol):
    """Observes the bytes of every connection."""

    def written(self, sender: SimTransport, data: bytes) -> None:
        """A program has written `data`, whether or not it arrives."""

    def arrived(self, sender: SimTransport, data: bytes) -> None:
        """`data` has reached the socket at the other end, whether or not its program reads it."""


class Fabric:
    def __init__(self, loop: VirtualLoop, random: Random, trace: Trace, weather: Weather | None = None) -> None:
        self.loop = loop
        self.weather = weather or Weather()
        self._random = random
        self._trace = trace
        self._context = copy_context()  # belongs to no process: the network outlives them all
        self._addresses: dict[str, str] = {}
        self._down: set[str] = set()
        self._blocked: set[tuple[str, str]] = set()
        self._held: dict[tuple[str, str], deque[tuple[SimTransport, Callable[..., None], tuple[Any, ...]]]] = {}
        self._stalled: dict[SimTransport, deque[tuple[Callable[..., None], tuple[Any, ...]]]] = {}
        self._listeners: dict[tuple[str, int], SimListener] = {}
        self._transports: dict[SimTransport, None] = {}
        self._next_port = 32768
        self.lags_us: dict[tuple[str, str], int] = {}
        """The upper bound, by (source, target), of the delay added to that of the weather."""
        self.tap: Tap | None = None

    def add(self, machine: str) -> str:
        """Assigns an address to the machine; from now on its name resolves to it."""
        return self._addresses.setdefault(machine, f"10.0.0.{len(self._addresses) + 1}")

    def block(self, source: str, target: str) -> None:
        """Delivers nothing from `source` to `target` until unblocked. The opposite direction is not affected."""
        self._trace.note(f"blocked {source} to {target}")
        self._blocked.add((source, target))

    def unblock(self, source: str, target: str) -> None:
        self._trace.note(f"unblocked {source} to {target}")
        self._blocked.discard((source, target))
        self._release((source, target))

    def partition(self, *sides: tuple[str, ...]) -> None:
        """Blocks all links between machines of different sides."""
        for side in sides:
            for other in sides:
                if side is not other:
                    for source in side:
                        for target in other:
                            self.block(source, target)

    def stall(self, source: str, target: str) -> None:
        """Holds back what existing connections carry from `source` to `target`; new connections are not affected."""
        self._trace.note(f"stalled {source} to {target}")
        for transport in self._transports:
            if transport.machine == source and transport.peer.machine == target:
                self._stalled.setdefault(transport, deque())

    def unstall(self, source: str, target: str) -> None:
        """Delivers what was held back, even if the process that sent it has ended."""
        self._trace.note(f"flows {source} to {target}")
        for transport in [each for each in self._stalled if (each.machine, each.peer.machine) == (source, target)]:
            for arrive, arguments in self._stalled.pop(transport):
                # In order: the end of a connection must not overtake the data before it.
                transport.last_arrival_us = max(transport.last_arrival_us, self.loop.now_us)
                transport.last_arrival_us += self._delay_us(source, target)
                self.carry(transport, arrive, *arguments)

    def break_connections(self, one: str, other: str) -> None:
        """Resets both ends, as when a firewall drops its connection table."""
        self._trace.note(f"broken {one} and {other}")
        for transport in self._transports:
            if (transport.machine, transport.peer.machine) in ((one, other), (other, one)):
                transport.reset()

    def heal(self) -> None:
        for source, target in sorted(self._blocked):
            self.unblock(source, target)
        for source, target in sorted({(each.machine, each.peer.machine) for each in self._stalled}):
            self.unstall(source, target)
        self.lags_us.clear()

    def process_ended(self, machine: str, process: Process) -> None:
        """The kernel closes the sockets of the process, unless the machine itself is down."""
        self._listeners = {
            key: listener for key, listener in self._listeners.items() if listener.process is not process
        }
        for transport in [transport for transport in self._transports if transport.process is process]:
            if machine in self._down:
                transport.closed = True
            else:
                transport.terminate()

    def machine_down(self, machine: str) -> None:
        self._down.add(machine)

    def machine_up(self, machine: str) -> None:
        self._down.discard(machine)
        for source in self._addresses:
            self._release((source, machine))

    def listen(self, machine: str, host: str, port: int, factory: ProtocolFactory) -> SimListener:
        if host not in _EVERYWHERE and host not in _LOCAL_NAMES and self.resolve(machine, host) != machine:
            raise OSError(errno.EADDRNOTAVAIL, "this address belongs to another machine", host)
        port = port or self._ephemeral_port()
        if (machine, port) in self._listeners:
            raise OSError(errno.EADDRINUSE, "address already in use", f"{host}:{port}")
        listener = self._listeners[machine, port] = SimListener(self, machine, port, factory)
        return listener

    def unlisten(self, machine: str, port: int) -> None:
        self._listeners.pop((machine, port), None)

    def resolve(self, machine: str, host: str) -> str:
        if host in _LOCAL_NAMES or host in _EVERYWHERE:
            return machine
        if host in self._addresses:
            return host
        for name, address in self._addresses.items():
            if address == host:
                return name
        raise socket.gaierror(socket.EAI_NONAME, f"no machine of the simulation is named {host!r}")

    async def connect(self, machine: str, host: str, port: int, factory: ProtocolFactory) -> asyncio.Transport:
        target = self.resolve(machine, host)
        for pause_s in _SYN_RETRIES_S:
            await asyncio.sleep(pause_s)
            if self._reaches(machine, target) and self._reaches(target, machine):
                return await self._handshake(machine, target, host, port, factory)
        raise TimeoutError(errno.ETIMEDOUT, f"connecting to {host}:{port} timed out")

    async def _handshake(
        self, machine: str, target: str, host: str, port: int, factory: ProtocolFactory
    ) -> asyncio.Transport:
        await asyncio.sleep(self._delay_us(machine, target) / 1_000_000)
        listener = self._listeners.get((target, port))
        if listener is None or self._chance(self.weather.refuse_chance):
            await asyncio.sleep(self._delay_us(target, machine) / 1_000_000)
            self._trace.note(f"refused {machine} to {target}:{port}")
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"{host}:{port} refuses connections")
        here = ("127.0.0.1" if target == machine else self._addresses[machine], self._ephemeral_port())
        there = ("127.0.0.1" if target == machine else self._addresses[target], port)
        mine = SimTransport(self, machine, here, there, self.weather.window_bytes)
        mine.is_client = True
        mine.peer = listener.endpoint(mine, there, here, self.weather.window_bytes)
        for transport in (mine, mine.peer):
            self._transports[transport] = None
        listener.accept(mine.peer)
        self._trace.note(f"connected {machine}:{here[1]} to {target}:{port}")
        try:
            await asyncio.sleep(self._delay_us(target, machine) / 1_000_000)
        except asyncio.CancelledError:
            mine.terminate()  # the listener's end exists already
            raise
        mine.attach(factory())
        return mine

    def send(self, sender: SimTransport, data: bytes) -> None:
        """Delivers bytes of a socket: whole, in pieces, or only a prefix followed by a reset."""
        weather = self.weather
        if self.tap is not None:
            self.tap.written(sender, data)
        if self._chance(weather.reset_chance):
            self.carry(sender, self._arrived, sender, data[: self._random.randint(0, len(data))])
            self.carry(sender, sender.peer.reset)
            self.carry(sender.peer, sender.reset)
            return
        while len(data) > 1 and self._chance(weather.split_chance):
            split_at = self._random.randint(1, len(data) - 1)
            self.carry(sender, self._arrived, sender, data[:split_at])
            data = data[split_at:]
        self.carry(sender, self._arrived, sender, data)

    def carry(self, sender: SimTransport, arrive: Callable[..., None], *arguments: Any) -> None:
        """Schedules an event of this connection at the other end, after everything sent before it."""
        delay_us = self._delay_us(sender.machine, sender.peer.machine)
        when_us = max(sender.last_arrival_us, self.loop.now_us + delay_us)
        sender.last_arrival_us = when_us
        self.loop.call_at_us(when_us, self._carried, sender, arrive, arguments, context=self._context)

    def is_abrupt(self) -> bool:
        """Whether a terminated connection ends with an error rather than an end-of-file."""
        return self._chance(0.5)

    def _carried(self, sender: SimTransport, arrive: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        link = (sender.machine, sender.peer.machine)
        if sender in self._stalled:
            self._stalled[sender].append((arrive, arguments))
        elif self._reaches(*link) and link not in self._held:
            arrive(*arguments)
            if sender.closed and sender.peer.closed:
                self._transports.pop(sender, None)
                self._transports.pop(sender.peer, None)
        elif sender.machine not in self._down:
            # A blocked link, or a target that is down: the sender's kernel keeps retransmitting.
            self._held.setdefault(link, deque()).append((sender, arrive, arguments))

    def _release(self, link: tuple[str, str]) -> None:
        if self._reaches(*link):
            for sender, arrive, arguments in self._held.pop(link, ()):
                self.carry(sender, arrive, *arguments)

    def _arrived(self, sender: SimTransport, data: bytes) -> None:
        self._trace.note(f"{sender!r} {len(data)} bytes", data)
        if self.tap is not None and sender.peer.is_receiving:
            self.tap.arrived(sender, data)
        sender.peer.arrived(data)

    def _reaches(self, source: str, target: str) -> bool:
        return (source, target) not in self._blocked and target not in self._down

    def _delay_us(self, source: str, target: str) -> int:
        weather = self.weather
        delay_us = self._random.randint(weather.least_delay_us, weather.most_delay_us)
        if self.lags_us:
            delay_us += self._random.randint(0, self.lags_us.get((source, target), 0))
        return delay_us + weather.slow_delay_us if self._chance(weather.slow_chance) else delay_us

    def _chance(self, chance: float) -> bool:
        return chance > 0 and self._random.random() < chance

    def _ephemeral_port(self) -> int:
        self._next_port += 1
        return self._next_port


class SimListener:
    def __init__(self, fabric: Fabric, machine: str, port: int, factory: ProtocolFactory) -> None:
        self.process = current_process()
        self._fabric = fabric
        self._machine = machine
        self._port = port
        self._factory = factory
        self._context = copy_context()

    @property
    def port(self) -> int:
        return self._port

    async def close(self) -> None:
        self._fabric.unlisten(self._machine, self._port)

    def endpoint(
        self, peer: SimTransport, local: tuple[str, int], remote: tuple[str, int], window_bytes: int
    ) -> SimTransport:
        """The kernel's part: the connection exists before the program accepts it."""
        endpoint = self._context.copy().run(SimTransport, self._fabric, self._machine, local, remote, window_bytes)
        endpoint.peer = peer
        return endpoint

    def accept(self, endpoint: SimTransport) -> None:
        self._fabric.loop.call_soon(self._accept, endpoint, context=self._context)

    def _accept(self, endpoint: SimTransport) -> None:
        endpoint.attach(self._factory())


class SimNetwork:
    """The network port of one process."""

    def __init__(self, fabric: Fabric, machine: str) -> None:
        self._fabric = fabric
        self._machine = machine

    async def listen(self, host: str, port: int, factory: ProtocolFactory, backlog: int = 50) -> Listener:
        return self._fabric.listen(self._machine, host, port, factory)

    async def connect(self, host: str, port: int, factory: ProtocolFactory) -> asyncio.Transport:
        return await self._fabric.connect(self._machine, host, port, factory)
