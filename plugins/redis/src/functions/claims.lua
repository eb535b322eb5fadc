-- Claims: how they are taken. Keeping and ending them is elsewhere.

local CLAIM = '>I4I8i8c8I4Bc0'
local CLAIM_QUEUE = '>i8i8Bc0'

-- The members of a lane of due tasks, read as far as they are wanted.
local function lane_cursor(tx, queue, lane, chunk)
  local cursor = { at = 0, members = {}, is_over = false }
  local from, to = '[' .. lane_of(queue, lane), '(' .. lane_end(queue, lane)
  function cursor.next()
    cursor.at = cursor.at + 1
    if cursor.at > #cursor.members and not cursor.is_over then
      cursor.members =
        redis.call('ZRANGEBYLEX', tx.keys[INDEX], from, to, 'LIMIT', 0, chunk)
      cursor.is_over = #cursor.members < chunk
      cursor.at = 1
      if not cursor.is_over then from = '(' .. cursor.members[chunk] end
    end
    cursor.first = cursor.members[cursor.at]
  end
  cursor.next()
  return cursor
end

-- What is due in a queue, in the order of claims: two lanes, merged. Each answer is a member; the
-- second one says whether it has lapsed.
local function due_members(tx, queue, limit)
  -- Most of them are runs.
  local chunk = math.ceil(limit / RUN_MAX) + 1
  local ready = lane_cursor(tx, queue, READY, chunk)
  local lapsed = lane_cursor(tx, queue, LAPSED, chunk)
  local function key(member)
    return struct.unpack(ORDER, key_of(member, queue, 1, ORDER_LEN))
  end
  return function()
    local is_lapsed = not ready.first
    if ready.first and lapsed.first then
      -- As numbers: Lua compares strings by the server's locale.
      local a1, a2, a3 = key(ready.first)
      local b1, b2, b3 = key(lapsed.first)
      is_lapsed = b1 < a1 or (b1 == a1 and (b2 < a2 or (b2 == a2 and b3 < a3)))
    end
    local cursor = is_lapsed and lapsed or ready
    local member = cursor.first
    if member then cursor.next() end
    return member, is_lapsed
  end
end

-- The queues, the one first that was served least recently: claims that take one task are fair too.
local function in_turn(tx, queues)
  if #queues < 2 then return queues end
  local names = {}
  for at, from in ipairs(queues) do names[at] = from.name end
  local served = redis.call('HMGET', tx.keys[SERVED], unpack(names))
  for at, from in ipairs(queues) do
    from.at = at
    from.turn = tonumber(tx.served[from.name] or served[at] or 0)
  end
  table.sort(queues, function(a, b)
    if a.turn ~= b.turn then return a.turn < b.turn end
    return a.at < b.at
  end)
  return queues
end

local function hold(tx, r, params, due)
  if r.status == IN_FLIGHT then
    append(tx, r, LEASE_EXPIRED, report_lease_expired())
    r.lease_expired_count = plus_one(r.lease_expired_count)
  end
  tx.generation = tx.generation + 1
  r.token = number_key(tx.generation) .. params.nonce
  r.status, r.ending, r.claimed_at, r.worker = IN_FLIGHT, ENDING_NONE, tx.now, params.worker
  r.due, r.run = due, ALONE
  touch_record(tx, r)
end

local function light_parts(tx, r) return parts(tx, r, newest(r, CLAIM_ATTEMPTS_MAX), light_field) end

-- Whether the answer has room for a task; then it is taken off.
local function fits(tx, r, room)
  local bytes = r.weight
  if has(r.flags, LIVED) then bytes = bytes + light_weight(light_parts(tx, r)) end
  if r.status == IN_FLIGHT then
    bytes = bytes + report_lease_expired().weight + #r.worker + ATTEMPT_BYTES
  end
  if not room.is_first and bytes > room.bytes then return false end
  room.is_first, room.bytes, room.tasks = false, room.bytes - bytes, room.tasks - 1
  return true
end

local function lease_end(tx, r, params, from)
  local lease = from.lease
  if params.lease >= 0 then
    lease = params.lease
  elseif has(r.flags, OWN_LEASE) then
    warm(r)
    lease = r.lease
  end
  return instant(tx.now + math.min(lease, from.lease_max))
end

-- Shortens a run in the lane of ready tasks to its ids from `at` on, of which `next_up` is the
-- first; `taken` of the others were.
local function cut_run(tx, member, run, ids, at, next_up, taken)
  leave(tx, member)
  local key = lane_of(next_up.queue, READY) .. order_key(next_up)
  enter(tx, key .. '\0' .. run)
  local set = #tx.runs
  tx.runs[set + 1] = run
  tx.runs[set + 2] = admission_key(next_up) .. table.concat(ids, '\0', at)
  depart(tx, run, READY, next_up, taken)
end

-- Enters what a claim took in the lane of leased tasks: most of it has one lease.
local function place_held(tx, taken)
  local groups = {}
  for _, r in ipairs(taken) do
    local group = groups[r.due]
    if not group then
      group = {}
      groups[r.due] = group
    end
    group[#group + 1] = r
  end
  for due, group in pairs(groups) do
    enter_together(tx, group, LEASED, 'run', timer_key)
    news(tx, group[1].queue, due)
  end
end

-- Claims up to `share` tasks of a queue, as far as the answer has room. One that does not fit ends
-- the claim: those behind it must not overtake it.
local function take(tx, from, params, share, room, claims)
  local queue, taken, fresh, is_over = from.name, {}, 0, false
  local next_member = due_members(tx, queue, share)
  while not is_over and #taken < share do
    local member, is_lapsed = next_member()
    if not member then break end
    local id, run = id_of(member, queue, ORDER_LEN)
    local ids = { id }
    if run then ids = read_run(tx, run) end
    local rest, taken_here = nil, 0
    for at, of_run in ipairs(ids) do
      if tx.records[of_run] == nil then
        -- One more than can be taken, since the rest of a run stands where its first does.
        fetch(tx, ids, at, math.min(#ids, at + share - #taken))
      end
      local r = find(tx, of_run)
      if r and r.queue == queue and r.run == (run or ALONE)
        and r.status == (is_lapsed and IN_FLIGHT or PENDING) then
        if #taken == share or not fits(tx, r, room) then
          is_over, rest = true, at
          if #taken < share then room.tasks = 0 end
          if taken_here > 0 then cut_run(tx, member, run, ids, at, r, taken_here) end
          break
        end
        hold(tx, r, params, lease_end(tx, r, params, from))
        taken_here = taken_here + 1
        taken[#taken + 1], claims[#claims + 1] = r, r
        if not is_lapsed then fresh = fresh + 1 end
      end
    end
    if not rest then
      leave(tx, member)
      if run then spend(tx, run) end
    end
  end
  if #taken > 0 then
    place_held(tx, taken)
    tally(tx, queue, READY, -fresh)
    tally(tx, queue, LEASED, fresh)
    tx.turns = tx.turns + 1
    tx.served[queue] = string.format('%.0f', tx.turns)
  end
  send_index(tx)
  return #taken
end

local function serve_claim(tx, params)
  local room = { tasks = params.limit, bytes = params.bytes_max, is_first = true }
  local claims, queues, is_rest = {}, in_turn(tx, params.queues), false
  -- First each queue gets its share of what is left, then those that have more get the rest.
  while room.tasks > 0 and #queues > 0 do
    local fuller = {}
    for at, from in ipairs(queues) do
      local share = is_rest and room.tasks or math.ceil(room.tasks / (#queues - at + 1))
      if share > 0 then
        local taken = take(tx, from, params, share, room, claims)
        if taken == share then fuller[#fuller + 1] = from end
      end
    end
    queues, is_rest = fuller, true
  end
  local soonest = -1
  for _, from in ipairs(params.queues) do
    local at = next_due(tx, from.name)
    local due_in = at and at - tx.now
    if due_in and (soonest < 0 or due_in < soonest) then soonest = due_in end
  end
  return { soonest, answers_of(tx, claims, PART_CLAIM) }
end

local function claim_due(keys, args)
  local tx = begin(keys)
  local calls, at, promoted = {}, 1, {}
  while at <= #args do
    local params, queue_count = { queues = {} }, 0
    params.limit, params.bytes_max, params.lease, params.nonce, queue_count, params.worker =
      struct.unpack(CLAIM, args[at])
    for n = 1, queue_count do
      local from = {}
      from.lease, from.lease_max, from.name = struct.unpack(CLAIM_QUEUE, args[at + n])
      params.queues[n] = from
    end
    at = at + 1 + queue_count
    calls[#calls + 1] = params
  end
  for _, params in ipairs(calls) do
    for _, from in ipairs(params.queues) do
      if not promoted[from.name] then
        promoted[from.name] = true
        promote(tx, from.name)
      end
    end
  end
  local answers = {}
  for n, params in ipairs(calls) do answers[n] = serve_claim(tx, params) end
  finish(tx)
  return answers
end

register('claim_due', claim_due, DRAINS)
