-- One sorted set in which every task stands in its places, `queue NUL lane key id`, all with the
-- score 0, so that members are in the order of their bytes and every number is exact. Names hold no
-- NUL. A lane is a range of it; counting one costs no more than finding its ends.
--
-- Tasks that enter a lane together stand there as a run: one member, `queue NUL lane key NUL run`,
-- and a field that lists them. A sorted set takes microseconds to change, so this is what makes
-- batches fast. Who leaves a run is only counted; the field goes when all have left, so that what
-- it lists counts only where the task's record names the run.

local ADMITTED = 'A' -- every task, by admission; runs
local DELAYED = 'D' -- pending and due later, by due time
local LEASED = 'L' -- in flight, by the end of the lease; runs
local READY = 'R' -- pending and due, in the order of claims; runs
local LAPSED = 'P' -- in flight with a lapsed lease, in the order of claims
local EXPIRING = 'E' -- unfinished, by expires_at
local FINISHED = { [SUCCEEDED] = 'S', [DEAD] = 'X', [CANCELLED] = 'C' } -- by the order of ends
local DEAD_OF_QUEUE = 'K' -- dead without a retention of their own, by death
local DEAD_OWN = 'W' -- dead with one, by its end

local ORDER = '>I4I8I8' -- priority, higher first; due time; admission
local ORDER_LEN = 20
local BY_TIME_LEN = 16
local PROMOTED_MAX = 1000
-- Fewer stand each by itself, which costs less then; more are several runs, so that one that stays
-- behind keeps few ids in memory.
local RUN_MIN, RUN_MAX = 4, 32
-- A run's number is this times a number that grows, and how many entered.
local RUN_SIZES = 64
-- In place of priority and admission in the key of a run of leased tasks.
local NO_ORDER = '\0\0\0\0\0\0\0\0\0\0\0\0'

local function sortable(at) return at - INSTANT_MIN end

local function lane_of(queue, lane) return queue .. '\0' .. lane end
local function lane_end(queue, lane) return queue .. '\0' .. string.char(byte(lane) + 1) end

local function time_key(at) return pack('>I8', at - INSTANT_MIN) end

-- Priority; due time; admission.
local function order_key(r)
  return sub(r.order, 1, 4) .. time_key(r.due) .. sub(r.order, 5)
end

-- Due time; priority; admission.
local function timer_key(r) return time_key(r.due) .. r.order end

local function number_key(number) return pack('>I8', number) end
local function admission_key(r) return sub(r.order, 5) end
local function admission_of(r) return (unpack_bytes('>I8', r.order, 5)) end

local function by_time_key(at, number)
  return pack('>I8I8', sortable(at), number)
end

local function enter(tx, member)
  local entered = tx.entered
  local count = #entered
  entered[count + 1], entered[count + 2] = '0', member
end

local function leave(tx, member) tx.left[#tx.left + 1] = member end

local function mark(tx, member, stays)
  if stays then enter(tx, member) else leave(tx, member) end
end

-- A new run of these ids; `admitted` is the admission of the first.
local function add_run(tx, ids, first, last, admitted)
  tx.run = tx.run + 1
  local run, set = number_key(tx.run * RUN_SIZES + last - first + 1), #tx.runs
  tx.runs[set + 1] = run
  tx.runs[set + 2] = admitted .. concat(ids, '\0', first, last)
  return run
end

-- The ids that a run lists, and the admission of the first.
local function read_run(tx, run)
  local listed, ids = call('HGET', tx.keys.runs, run), {}
  for id in string.gmatch(sub(listed, 9), '%Z+') do ids[#ids + 1] = id end
  return ids, sub(listed, 1, 8)
end

local function gone_field(run) return run .. '-' end

local function spend(tx, run)
  local count = #tx.spent
  tx.spent[count + 1], tx.spent[count + 2] = run, gone_field(run)
end

-- So many tasks leave a run, one of which is due then and has that priority and admission.
local function depart(tx, run, lane, queue, due, order, count)
  local known = tx.departed[run]
  if known then
    known.count = known.count + count
  else
    tx.departed[run] = { count = count, lane = lane, queue = queue, due = due, order = order }
  end
end

local function send_departed(tx)
  for run, left in pairs(tx.departed) do
    local size, gone = byte(run, 8) % RUN_SIZES, left.count
    if left.lane ~= ADMITTED then tally(tx, left.queue, left.lane, -gone) end
    if gone < size then gone = call('HINCRBY', tx.keys.runs, gone_field(run), gone) end
    if gone == size then
      local key
      if left.lane == LEASED then
        key = time_key(left.due) .. NO_ORDER
      else
        key = sub(call('HGET', tx.keys.runs, run), 1, 8)
        if left.lane == READY then key = sub(left.order, 1, 4) .. time_key(left.due) .. key end
      end
      leave(tx, lane_of(left.queue, left.lane) .. key .. '\0' .. run)
      spend(tx, run)
    end
  end
end

-- Sends what the index is to become, so that a range shows it.
local function send_index(tx)
  send('HSET', tx.keys.runs, tx.runs)
  tx.runs = {}
  send_departed(tx)
  send('HDEL', tx.keys.runs, tx.spent)
  send('ZREM', tx.keys.index, tx.left)
  send('ZADD', tx.keys.index, tx.entered)
  tx.departed, tx.spent, tx.left, tx.entered = {}, {}, {}, {}
end

-- Enters the places of a finished task, or takes it out of them.
local function mark_finished(tx, r, stays)
  warm(r)
  local key = number_key(r.finished) .. r.id
  mark(tx, lane_of(r.queue, FINISHED[r.status]) .. key, stays)
  if r.status == DEAD then
    if r.retention < 0 then
      mark(tx, lane_of(r.queue, DEAD_OF_QUEUE) .. key, stays)
    else
      local kept_until = instant(r.finished_at + r.retention)
      mark(tx, lane_of(r.queue, DEAD_OWN) .. by_time_key(kept_until, r.finished) .. r.id, stays)
    end
  end
end

local function mark_expiring(tx, r, stays)
  if has(r.flags, EXPIRES) then
    warm(r)
    local key = by_time_key(r.expires_at, admission_of(r)) .. r.id
    mark(tx, lane_of(r.queue, EXPIRING) .. key, stays)
  end
end

-- Takes a task out of its lane. Of one that came due by itself, the record does not say whether it
-- was promoted.
local function displace_pending(tx, r)
  if r.run ~= ALONE then return depart(tx, r.run, READY, r.queue, r.due, r.order, 1) end
  local ready = lane_of(r.queue, READY) .. order_key(r) .. r.id
  if r.due <= tx.now and call('ZSCORE', tx.keys.index, ready) then
    leave(tx, ready)
    tally(tx, r.queue, READY, -1)
  else
    leave(tx, lane_of(r.queue, DELAYED) .. timer_key(r) .. r.id)
  end
end

local function displace_in_flight(tx, r)
  if r.run ~= ALONE then return depart(tx, r.run, LEASED, r.queue, r.due, r.order, 1) end
  tally(tx, r.queue, LEASED, -1)
  leave(tx, lane_of(r.queue, LEASED) .. timer_key(r) .. r.id)
  if r.due <= tx.now then leave(tx, lane_of(r.queue, LAPSED) .. order_key(r) .. r.id) end
end

-- Takes a task out of its places.
local function displace(tx, r)
  if r.status > IN_FLIGHT then return mark_finished(tx, r, false) end
  if r.status == PENDING then displace_pending(tx, r) else displace_in_flight(tx, r) end
  mark_expiring(tx, r, false)
end

-- Enters a task in its places, by itself.
local function place(tx, r)
  r.run = ALONE
  if r.status > IN_FLIGHT then return mark_finished(tx, r, true) end
  if r.status == IN_FLIGHT then
    enter(tx, lane_of(r.queue, LEASED) .. timer_key(r) .. r.id)
    tally(tx, r.queue, LEASED, 1)
  elseif r.due > tx.now then
    enter(tx, lane_of(r.queue, DELAYED) .. timer_key(r) .. r.id)
  else
    enter(tx, lane_of(r.queue, READY) .. order_key(r) .. r.id)
    tally(tx, r.queue, READY, 1)
  end
  mark_expiring(tx, r, true)
  news(tx, r.queue, r.due)
end

local function range(tx, queue, lane, limit)
  local from, to = '[' .. lane_of(queue, lane), '(' .. lane_end(queue, lane)
  return call('ZRANGEBYLEX', tx.keys.index, from, to, 'LIMIT', 0, limit)
end

local function count(tx, queue, lane)
  local from, to = '[' .. lane_of(queue, lane), '(' .. lane_end(queue, lane)
  return call('ZLEXCOUNT', tx.keys.index, from, to)
end

-- The end of what has come due in a lane that is ordered by time.
local function due_end(tx, queue, lane)
  return '(' .. lane_of(queue, lane) .. time_key(tx.now + 1)
end

-- The members of such a lane that have come due, after a member.
local function due_range(tx, queue, lane, limit, after)
  local from = after and '(' .. after or '[' .. lane_of(queue, lane)
  local to = due_end(tx, queue, lane)
  return call('ZRANGEBYLEX', tx.keys.index, from, to, 'LIMIT', 0, limit)
end

local function due_count(tx, queue, lane)
  local from = '[' .. lane_of(queue, lane)
  return call('ZLEXCOUNT', tx.keys.index, from, due_end(tx, queue, lane))
end

local function key_of(member, queue, from, len)
  local start = #queue + 2 + from
  return sub(member, start, start + len - 1)
end

-- What follows the key: an id, or the run that stands there, which is the second answer.
local function id_of(member, queue, key_len)
  local start = #queue + 3 + key_len
  if byte(member, start) == 0 then return nil, sub(member, start + 1) end
  return sub(member, start)
end

-- A member of a lane by time as it is in the lane by order.
local function promoted(member, queue, lane)
  local due, priority = key_of(member, queue, 1, 8), key_of(member, queue, 9, 4)
  return lane_of(queue, lane) .. priority .. due .. sub(member, #queue + 2 + 13)
end

-- Moves what has come due to the lanes of due tasks, a bounded number: beyond it, a claim takes by
-- priority among these.
local function promote(tx, queue)
  local due = due_range(tx, queue, DELAYED, PROMOTED_MAX)
  for _, member in ipairs(due) do
    leave(tx, member)
    enter(tx, promoted(member, queue, READY))
  end
  if #due > 0 then tally(tx, queue, READY, #due) end
  local moved = 0
  for _, member in ipairs(due_range(tx, queue, LEASED, PROMOTED_MAX)) do
    if moved >= PROMOTED_MAX then break end
    local id, run = id_of(member, queue, ORDER_LEN)
    leave(tx, member)
    if id then
      enter(tx, promoted(member, queue, LAPSED))
      moved = moved + 1
    else
      local ids = read_run(tx, run)
      fetch(tx, ids)
      for _, of_run in ipairs(ids) do
        local r = find(tx, of_run)
        if r and r.run == run then
          r.run = ALONE
          touch_record(tx, r)
          enter(tx, lane_of(queue, LAPSED) .. order_key(r) .. r.id)
        end
      end
      spend(tx, run)
      moved = moved + #ids
    end
  end
  send_index(tx)
end

local function timer_at(member, queue)
  return unpack_bytes('>I8', key_of(member, queue, 1, 8)) + INSTANT_MIN
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
      local from, to = '[' .. sub(due_end(tx, queue, lane), 2), '(' .. lane_end(queue, lane)
      first = call('ZRANGEBYLEX', tx.keys.index, from, to, 'LIMIT', 0, 1)[1]
      at = first and timer_at(first, queue)
    end
    if at and (not later or at < later) then later = at end
  end
  return due or later, later
end

local function is_empty(tx, queue)
  return not range(tx, queue, ADMITTED, 1)[1]
end
