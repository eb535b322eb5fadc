-- What every function begins and ends with: one instant, records read once, and writes that are
-- collected and sent last. A function that fails before `finish` has changed nothing, and nothing
-- in `finish` can fail: Redis has no rollback.

local SCHEMA = 2
local STATE = '>Bi8i8i8i8i8i8i8'
-- The names of the keys, in the order in which they are passed.
local KEYS = {
  'state', 'tasks', 'bodies', 'history', 'index', 'runs', 'tallies', 'served', 'queues', 'secrets',
  'locks', 'records', 'names', 'streams', 'events', 'mutations', 'observed',
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
    rows = {}, -- of what is no task's, by key: what its fields become; false deletes
    ranks = {}, -- of members of sorted sets, by key: what their scores become; false removes
    topics = {}, -- that have news
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

-- Tells those who wait, last of all. The channels have the names of keys: the state's for tasks that
-- are due, and that of streams for topics.
local function send_news(tx)
  local parts = {}
  for queue, at in pairs(tx.news) do
    parts[#parts + 1] = pack('>I8Bc0', math.max(at - tx.now, 0), #queue, queue)
  end
  if #parts > 0 then call('PUBLISH', tx.keys.state, concat(parts)) end
  parts = {}
  for topic in pairs(tx.topics) do parts[#parts + 1] = string.char(#topic) .. topic end
  if #parts > 0 then call('PUBLISH', tx.keys.streams, concat(parts)) end
end

-- What is no task's is kept in rows: fields of a key, which later items of a call see as earlier ones
-- left them. Nothing of it is sent before `finish`. Tables, for Lua has no more than 200 names in one
-- scope.
local rows = {}

function rows.keep(kept, key, name, value)
  local known = kept[key]
  if not known then
    known = {}
    kept[key] = known
  end
  known[name] = value
end

function rows.put(tx, key, field, value) rows.keep(tx.rows, key, field, value) end

function rows.get(tx, key, field)
  local known = tx.rows[key]
  if known and known[field] ~= nil then return known[field] end
  return call('HGET', tx.keys[key], field)
end

-- The same of the members of a sorted set.
function rows.rank(tx, key, member, score) rows.keep(tx.ranks, key, member, score) end

function rows.send_ranks(key, ranks)
  local entered, left = {}, {}
  for member, score in pairs(ranks) do
    if score then
      entered[#entered + 1] = score
      entered[#entered + 1] = member
    else
      left[#left + 1] = member
    end
  end
  send('ZREM', key, left)
  send('ZADD', key, entered)
end

function rows.send(tx)
  for key, fields in pairs(tx.rows) do send_fields(tx.keys[key], fields) end
  for key, ranks in pairs(tx.ranks) do rows.send_ranks(tx.keys[key], ranks) end
end

-- How many to read next for a page that has so many, which weigh so much of what there is room for:
-- they may be large or small.
function rows.at_once(count, bytes, room, limit)
  if count == 0 then return math.min(8, limit) end
  local fitting = math.ceil((room - bytes) * count / math.max(bytes, 1))
  return math.max(1, math.min(fitting, 2 * count, limit - count, 500))
end

-- What commits use of the files that come before theirs.
local parts_of_commits = {}

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
