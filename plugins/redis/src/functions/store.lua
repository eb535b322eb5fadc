-- What every function begins and ends with: one instant, records read once, and writes that are
-- collected and sent last. A function that fails before `finish` has changed nothing, and nothing
-- in `finish` can fail: Redis has no rollback.

local SCHEMA = 2
local STATE = '>Bi8i8i8i8i8i8i8'
-- The names of the keys, in the order in which they are passed.
local KEYS = {
  'state', 'tasks', 'bodies', 'history', 'index', 'runs', 'tallies', 'served', 'queues', 'secrets',
}
-- Lua passes so many arguments to a command at most; even, since some come in pairs.
local ARGUMENTS_MAX = 2000

-- What is called all the time, under short names: to look at the tables of Redis takes as long as what
-- is called, and they are not there while the library loads.
local call, pack, unpack_bytes, sub, byte, concat

-- The clock now: the host's, but if that was set back, ours goes on at half speed until the host
-- has caught up. It never runs backwards, and what waits is late but not stuck.
local function advance(now, host_then, host)
  if host >= now then return host, host end
  local passed = host - host_then
  if passed < 0 then return now, host end
  -- The odd millisecond stays for the next time, so that frequent readings do not stop it.
  local odd = passed % 2
  return now + (passed - odd) / 2, host - odd
end

-- What is collected until it is sent. Lists hold the arguments of commands as they are.
local function begin_writes(tx)
  tx.dirty = {} -- records to store
  tx.stored = {} -- and those that are packed: id, record
  tx.gone = {} -- ids to remove
  tx.bodies = {} -- of admitted tasks: field, value
  tx.fields = { bodies = {}, history = {} } -- by field; false deletes
  tx.entered, tx.left = {}, {} -- members of the index: score, member; and member
  tx.runs, tx.spent = {}, {} -- fields of runs: field, value; and field
  tx.departed = {} -- by run: who left it
  tx.tallies = {} -- by lane and queue: what changed
end

local function begin(keys)
  if not call then
    call, pack, unpack_bytes = redis.call, struct.pack, struct.unpack
    sub, byte, concat = string.sub, string.byte, table.concat
  end
  local tx = {
    keys = {},
    packed = {}, -- records by id, as they were read; false is a task that is not there
    records = {}, -- the same, taken apart
    news = {}, -- by queue: when something of it is due
    served = {}, -- by queue: its turn; false forgets it
    emptied = {}, -- queues that a task was removed from
    removed = 0, -- tasks, and records of their histories
  }
  for at, name in ipairs(KEYS) do tx.keys[name] = keys[at] end
  begin_writes(tx)
  -- Read once: on older servers it moves within a call.
  local time = call('TIME')
  local host = time[1] * 1000 + math.floor(time[2] / 1000)
  local stored = call('GET', tx.keys.state)
  if stored then
    if byte(stored) ~= SCHEMA then error('RDQSCHEMA ' .. byte(stored), 0) end
    local _
    _, tx.now, tx.host, tx.admitted, tx.finished, tx.generation, tx.turns, tx.run =
      unpack_bytes(STATE, stored)
    tx.now, tx.host = advance(tx.now, tx.host, host)
  else
    tx.now, tx.host = host, host
    tx.admitted, tx.finished, tx.generation, tx.turns, tx.run = 0, 0, 0, 0, 0
  end
  return tx
end

local function send(command, key, arguments)
  local count = #arguments
  for first = 1, count, ARGUMENTS_MAX do
    local last = math.min(first + ARGUMENTS_MAX - 1, count)
    call(command, key, unpack(arguments, first, last))
  end
end

local function send_fields(key, fields)
  local set, deleted = {}, {}
  for field, value in pairs(fields) do
    if value then
      set[#set + 1] = field
      set[#set + 1] = value
    else
      deleted[#deleted + 1] = field
    end
  end
  send('HDEL', key, deleted)
  send('HSET', key, set)
end

local function send_tallies(tx)
  local key = tx.keys.tallies
  for lane, changes in pairs(tx.tallies) do
    for queue, change in pairs(changes) do
      local field = queue .. '\0' .. lane
      if change ~= 0 and call('HINCRBY', key, field, change) == 0 then
        call('HDEL', key, field)
      end
    end
  end
end

-- Counts the tasks of a queue in a lane where they stand as runs, which the index cannot count.
local function tally(tx, queue, lane, change)
  local changes = tx.tallies[lane]
  if not changes then
    changes = {}
    tx.tallies[lane] = changes
  end
  changes[queue] = (changes[queue] or 0) + change
end

local function send_state(tx)
  local state = pack(
    STATE, SCHEMA, tx.now, tx.host, tx.admitted, tx.finished, tx.generation, tx.turns, tx.run)
  call('SET', tx.keys.state, state)
end

-- Tells those who wait, last of all. The channel has the name of the state's key.
local function send_news(tx)
  local parts = {}
  for queue, at in pairs(tx.news) do
    parts[#parts + 1] = pack('>I8Bc0', math.max(at - tx.now, 0), #queue, queue)
  end
  if #parts > 0 then call('PUBLISH', tx.keys.state, concat(parts)) end
end

local function news(tx, queue, at)
  local known = tx.news[queue]
  if not known or at < known then tx.news[queue] = at end
end

-- What a full server refuses is what makes it fuller: work that is there can always be drained.
local NEEDS_SPACE, DRAINS, READS = {}, { 'allow-oom' }, { 'no-writes', 'allow-oom' }

local function register(name, callback, flags)
  redis.register_function({
    function_name = LIBRARY .. '_' .. name, callback = callback, flags = flags,
  })
end
