-- What is answered without writing: tasks, counts, names.

local LIST = '>bi8I4I8BBc0'
-- Priorities among which the oldest due task is looked for.
local PRIORITIES_MAX = 1000

local function get(keys, args)
  local tx = begin(keys)
  local r = find(tx, args[1])
  if not r then return {} end
  return answers_of(tx, { r.id }, { r }, PART_WHOLE)
end

local function list(keys, args)
  local tx = begin(keys)
  local p, status = {}, nil
  status, p.before, p.limit, p.bytes_max, p.part, p.queue = unpack_bytes(LIST, args[1])
  return page(tx, p.queue, ADMITTED, admission_of, p, function(r)
    return status < 0 or r.status == status
  end)
end

-- The due time of the oldest task that is pending and due: the first of each priority is its
-- oldest.
local function oldest_due(tx, queue)
  local oldest
  local from, to = '[' .. lane_of(queue, READY), '(' .. lane_end(queue, READY)
  for _ = 1, PRIORITIES_MAX do
    local first = call('ZRANGEBYLEX', tx.keys.index, from, to, 'LIMIT', 0, 1)[1]
    if not first then break end
    local priority, due = unpack_bytes('>I4I8', key_of(first, queue, 1, 12))
    due = due + INSTANT_MIN
    if not oldest or due < oldest then oldest = due end
    if priority == COUNT_MAX then break end
    from = '[' .. lane_of(queue, READY) .. pack('>I4', priority + 1)
  end
  local first = range(tx, queue, DELAYED, 1)[1]
  local due = first and timer_at(first, queue)
  if due and due <= tx.now and (not oldest or due < oldest) then oldest = due end
  return oldest
end

-- Leased tasks whose leases have run out and that no claim has moved yet.
local function due_leased(tx, queue)
  local found, last = 0, nil
  repeat
    local members = due_range(tx, queue, LEASED, PROMOTED_MAX, last)
    for _, member in ipairs(members) do
      local id, run = id_of(member, queue, ORDER_LEN)
      local gone = run and tonumber(call('HGET', tx.keys.runs, gone_field(run)) or 0)
      found = found + (id and 1 or byte(run, 8) % RUN_SIZES - gone)
    end
    last = members[#members]
  until #members < PROMOTED_MAX
  return found
end

local function tallied(tx, queue, lane)
  return tonumber(call('HGET', tx.keys.tallies, queue .. '\0' .. lane) or 0)
end

local function stats(keys, args)
  local tx = begin(keys)
  local queue = args[1]
  local due_delayed = due_count(tx, queue, DELAYED)
  local oldest = oldest_due(tx, queue)
  return {
    tallied(tx, queue, READY) + due_delayed,
    count(tx, queue, DELAYED) - due_delayed,
    tallied(tx, queue, LEASED),
    count(tx, queue, LAPSED) + due_leased(tx, queue),
    count(tx, queue, FINISHED[DEAD]),
    count(tx, queue, FINISHED[SUCCEEDED]),
    count(tx, queue, FINISHED[CANCELLED]),
    oldest and math.max(tx.now - oldest, 0) or -1,
  }
end

-- Per queue, how long until something is due and until the first later moment; -1 for nothing.
local function due_times(keys, args)
  local tx = begin(keys)
  local answers = {}
  for _, queue in ipairs(args) do
    local due, later = next_due(tx, queue)
    answers[#answers + 1] = due and math.max(due - tx.now, 0) or -1
    answers[#answers + 1] = later and later - tx.now or -1
  end
  return answers
end

-- The queues that hold tasks and those that have a configuration, after a name; unsorted.
local function queue_names(keys, args)
  local tx = begin(keys)
  local after, limit = args[1], tonumber(args[2])
  local names = call('HKEYS', tx.keys.queues)
  -- A name is followed by NUL in its members, and 1 stands in no name.
  local from = after == '' and '-' or '(' .. after .. '\1'
  for _ = 1, limit do
    local first = call('ZRANGEBYLEX', tx.keys.index, from, '+', 'LIMIT', 0, 1)[1]
    if not first then break end
    local name = string.match(first, '^(%Z*)')
    names[#names + 1] = name
    from = '(' .. name .. '\1'
  end
  return names
end

-- The tokens of claims that are their task's newest, live or not; false for others. Who held one that
-- has ended is not kept.
local function claims_of(keys, args)
  local tx = begin(keys)
  local answers = {}
  for n, packed in ipairs(args) do
    local generation, worker, id = unpack_bytes('>c8Bc0Bc0', packed)
    local r = find(tx, id)
    local is_newest = r and sub(r.token, 1, 8) == generation and generation ~= number_key(0)
    answers[n] = is_newest and (r.worker == '' or r.worker == worker) and r.token
  end
  return answers
end

register('get', get, READS)
register('claims_of', claims_of, READS)
register('list', list, READS)
register('stats', stats, READS)
register('due_times', due_times, READS)
register('queue_names', queue_names, READS)
