-- One sorted set in which every task stands in its places, `queue NUL lane key id`, all with the
-- score 0, so that members are in the order of their bytes and every number is exact. Names hold no
-- NUL. A lane is a range of it; counting one costs no more than finding its ends.

local ADMITTED = 'A' -- every task, by admission
local DELAYED = 'D' -- pending and due later, by due time
local LEASED = 'L' -- in flight, by the end of the lease
local READY = 'R' -- pending and due, in the order of claims
local LAPSED = 'P' -- in flight with a lapsed lease, in the order of claims
local EXPIRING = 'E' -- unfinished, by expires_at
local FINISHED = { [SUCCEEDED] = 'S', [DEAD] = 'X', [CANCELLED] = 'C' } -- by the order of ends
local DEAD_OF_QUEUE = 'K' -- dead without a retention of their own, by death
local DEAD_OWN = 'W' -- dead with one, by its end

local ORDER = '>I4I8I8' -- priority, higher first; due time; admission
local ORDER_LEN = 20
local TIMER = '>I8I4I8' -- due time; priority; admission
local TIMER_LEN = 20
local BY_TIME_LEN = 16
local PROMOTED_MAX = 1000

local function sortable(at) return at - INSTANT_MIN end
local function sortable_priority(priority) return 2147483647 - priority end

local function lane_of(queue, lane) return queue .. '\0' .. lane end
local function lane_end(queue, lane) return queue .. '\0' .. string.char(string.byte(lane) + 1) end

local function order_key(r)
  return struct.pack(ORDER, sortable_priority(r.priority), sortable(r.due), r.admitted)
end

local function timer_key(r)
  return struct.pack(TIMER, sortable(r.due), sortable_priority(r.priority), r.admitted)
end

local function number_key(number) return struct.pack('>I8', number) end

local function by_time_key(at, number)
  return struct.pack('>I8I8', sortable(at), number)
end

-- Enters the places of a finished task, or takes it out of them.
local function mark_finished(tx, r, stays)
  local key = number_key(r.finished) .. r.id
  tx.index[lane_of(r.queue, FINISHED[r.status]) .. key] = stays
  if r.status == DEAD then
    if r.retention < 0 then
      tx.index[lane_of(r.queue, DEAD_OF_QUEUE) .. key] = stays
    else
      local kept_until = instant(r.finished_at + r.retention)
      local own = by_time_key(kept_until, r.finished) .. r.id
      tx.index[lane_of(r.queue, DEAD_OWN) .. own] = stays
    end
  end
end

local function mark_expiring(tx, r, stays)
  if has(r.flags, EXPIRES) then
    local key = by_time_key(r.expires_at, r.admitted) .. r.id
    tx.index[lane_of(r.queue, EXPIRING) .. key] = stays
  end
end

-- Takes a task out of its places. Which lane of its two it stands in depends on whether it was
-- promoted; its record does not say.
local function displace(tx, r)
  if r.status > IN_FLIGHT then return mark_finished(tx, r, false) end
  local is_pending = r.status == PENDING
  tx.index[lane_of(r.queue, is_pending and READY or LAPSED) .. order_key(r) .. r.id] = false
  tx.index[lane_of(r.queue, is_pending and DELAYED or LEASED) .. timer_key(r) .. r.id] = false
  mark_expiring(tx, r, false)
end

-- Enters a task in its places.
local function place(tx, r)
  if r.status > IN_FLIGHT then return mark_finished(tx, r, true) end
  local is_pending = r.status == PENDING
  if r.due <= tx.now then
    tx.index[lane_of(r.queue, is_pending and READY or LAPSED) .. order_key(r) .. r.id] = true
  else
    tx.index[lane_of(r.queue, is_pending and DELAYED or LEASED) .. timer_key(r) .. r.id] = true
  end
  mark_expiring(tx, r, true)
  news(tx, r.queue, r.due)
end

-- Changes a task and its places with it: every change of a stored task goes through here.
local function change(tx, r, apply, ...)
  displace(tx, r)
  apply(tx, r, ...)
  place(tx, r)
  tx.changed[r.id] = true
end

local function range(tx, queue, lane, limit)
  local from, to = '[' .. lane_of(queue, lane), '(' .. lane_end(queue, lane)
  return redis.call('ZRANGEBYLEX', tx.keys[INDEX], from, to, 'LIMIT', 0, limit)
end

local function count(tx, queue, lane)
  local from, to = '[' .. lane_of(queue, lane), '(' .. lane_end(queue, lane)
  return redis.call('ZLEXCOUNT', tx.keys[INDEX], from, to)
end

-- The end of what has come due in a lane that is ordered by time.
local function due_end(tx, queue, lane)
  return '(' .. lane_of(queue, lane) .. struct.pack('>I8', sortable(tx.now) + 1)
end

-- The members of such a lane that have come due.
local function due_range(tx, queue, lane, limit)
  local from = '[' .. lane_of(queue, lane)
  local to = due_end(tx, queue, lane)
  return redis.call('ZRANGEBYLEX', tx.keys[INDEX], from, to, 'LIMIT', 0, limit)
end

local function due_count(tx, queue, lane)
  local from = '[' .. lane_of(queue, lane)
  return redis.call('ZLEXCOUNT', tx.keys[INDEX], from, due_end(tx, queue, lane))
end

local function key_of(member, queue, from, len)
  local start = #queue + 2 + from
  return string.sub(member, start, start + len - 1)
end

local function id_of(member, queue, key_len)
  return string.sub(member, #queue + 3 + key_len)
end

-- Moves what has come due to the lanes of due tasks, a bounded number: beyond it, a claim takes by
-- priority among these.
local function promote(tx, queue)
  for _, lanes in ipairs({ { DELAYED, READY }, { LEASED, LAPSED } }) do
    local members = due_range(tx, queue, lanes[1], PROMOTED_MAX)
    if #members > 0 then
      local added = {}
      for _, member in ipairs(members) do
        local due, priority = key_of(member, queue, 1, 8), key_of(member, queue, 9, 4)
        local rest = string.sub(member, #queue + 2 + 13)
        added[#added + 1] = 0
        added[#added + 1] = lane_of(queue, lanes[2]) .. priority .. due .. rest
      end
      send('ZREM', tx.keys[INDEX], members)
      send('ZADD', tx.keys[INDEX], added)
    end
  end
end

local function timer_at(member, queue)
  return struct.unpack('>I8', key_of(member, queue, 1, 8)) + INSTANT_MIN
end

-- When something of a queue is due: now if it is already; nil if nothing waits. The second answer
-- is the first moment later than now.
local function next_due(tx, queue)
  local due, later
  if range(tx, queue, READY, 1)[1] or range(tx, queue, LAPSED, 1)[1] then due = tx.now end
  for _, lane in ipairs({ DELAYED, LEASED }) do
    local first = range(tx, queue, lane, 1)[1]
    local at = first and timer_at(first, queue)
    if at and at <= tx.now then
      due = tx.now
      local from, to = '[' .. string.sub(due_end(tx, queue, lane), 2), '(' .. lane_end(queue, lane)
      first = redis.call('ZRANGEBYLEX', tx.keys[INDEX], from, to, 'LIMIT', 0, 1)[1]
      at = first and timer_at(first, queue)
    end
    if at and (not later or at < later) then later = at end
  end
  return due or later, later
end

local function is_empty(tx, queue)
  return not range(tx, queue, ADMITTED, 1)[1]
end
