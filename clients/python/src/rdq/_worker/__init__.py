"""The worker's core, on asyncio. `rdq.Worker` and `rdq.sync.Worker` both run this one.

`core` holds the claims and decides; `receiver` brings claims; `courier` takes outcomes and heartbeats away; `handlers`
finds and runs what the user registered; `conclusion` says what its end means.
"""
