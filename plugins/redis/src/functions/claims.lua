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
        call('ZRANGEBYLEX', tx.keys.index, from, to, 'LIMIT', 0, chunk)
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
    return unpack_bytes(ORDER, key_of(member, queue, 1, ORDER_LEN))
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
  local served = call('HMGET', tx.keys.served, unpack(names))
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

local function light_parts(tx, r) return parts(tx, r, newest(r, CLAIM_ATTEMPTS_MAX), light_field) end

-- Whether the answer has room for so much; then it is taken off.
local function fits(room, bytes)
  if not room.is_first and bytes > room.bytes then return false end
  room.is_first, room.bytes, room.tasks = false, room.bytes - bytes, room.tasks - 1
  return true
end

local function claim_weight(tx, r)
  local bytes = r.weight
  if has(r.flags, LIVED) then bytes = bytes + light_weight(light_parts(tx, r)) end
  if r.status == IN_FLIGHT then
    bytes = bytes + report_lease_expired().weight + #r.worker + ATTEMPT_BYTES
  end
  return bytes
end

local function lease_end(tx, params, from, own)
  local lease = params.lease >= 0 and params.lease or own >= 0 and own or from.lease
  return instant(tx.now + math.min(lease, from.lease_max))
end

-- Hands out a task that has something of its own: a lease, an expiry, a history.
local function hold(tx, r, params, from)
  if r.status == IN_FLIGHT then
    append(tx, r, LEASE_EXPIRED, report_lease_expired())
    r.lease_expired_count = plus_one(r.lease_expired_count)
    tally(tx, r.queue, LEASED, -1)
  end
  local own = -1
  if has(r.flags, OWN_LEASE) then
    warm(r)
    own = r.lease
  end
  r.token, r.claimed_at, r.worker = params.token, tx.now, params.worker
  r.status, r.ending, r.due = IN_FLIGHT, ENDING_NONE, lease_end(tx, params, from, own)
  r.run = ALONE
  enter(tx, lane_of(r.queue, LEASED) .. timer_key(r) .. r.id)
  tally(tx, r.queue, LEASED, 1)
  news(tx, r.queue, r.due)
  touch_record(tx, r)
end

-- What a claim hands out: ids, and records, packed or not, in the order of claims. Of `plain` ones
-- only the ends of records are there until `hold_plain`.
local function new_claims() return { count = 0, ids = {}, records = {} } end

local function add_claim(claims, id, record)
  local count = claims.count + 1
  claims.count, claims.ids[count], claims.records[count] = count, id, record
  return count
end

-- Hands out the plain tasks among the claims at these places: all of them have one lease, and stand
-- in its lane together if they are many.
local function hold_plain(tx, claims, places, params, from)
  local count = #places
  if count == 0 then return end
  local ids, records, stored = {}, claims.records, tx.stored
  for n, place in ipairs(places) do ids[n] = claims.ids[place] end
  local due, at = lease_end(tx, params, from, -1), #stored
  local lane = lane_of(from.name, LEASED) .. time_key(due)
  for first = 1, count, RUN_MAX do
    local last, run = math.min(first + RUN_MAX - 1, count), ALONE
    if count >= RUN_MIN then
      local order = sub(records[places[first]], ORDER_AFTER, ORDER_AFTER + 11)
      run = add_run(tx, ids, first, last, sub(order, 5))
      enter(tx, lane .. NO_ORDER .. '\0' .. run)
    end
    local head = pack(
      HELD, IN_FLIGHT, ENDING_NONE, due, tx.now, params.token, run, #params.worker, params.worker)
    for n = first, last do
      local place, id = places[n], ids[n]
      local rest = records[place]
      if run == ALONE then
        enter(tx, lane .. sub(rest, ORDER_AFTER, ORDER_AFTER + 11) .. id)
      end
      local record = head .. rest
      records[place], tx.packed[id] = record, record
      stored[at + 1], stored[at + 2] = id, record
      at = at + 2
    end
  end
  tally(tx, from.name, LEASED, count)
  news(tx, from.name, due)
end

-- Shortens a run in the lane of ready tasks to its ids from `at` on, of which the first has this
-- record; `taken` of the others were.
local function cut_run(tx, member, run, ids, at, record, taken)
  local r = unpack_record(ids[at], record)
  leave(tx, member)
  enter(tx, lane_of(r.queue, READY) .. order_key(r) .. '\0' .. run)
  local set = #tx.runs
  tx.runs[set + 1] = run
  tx.runs[set + 2] = admission_key(r) .. concat(ids, '\0', at)
  depart(tx, run, READY, r.queue, r.due, r.order, taken)
end

-- Claims the tasks of one member of a lane, as far as the answer has room and `share` goes. The
-- answer is how many, and whether none may be taken behind it.
local function take_member(tx, queue, member, is_lapsed, share, room, claims, plain, params, from)
  local id, run = id_of(member, queue, ORDER_LEN)
  local ids, place, taken = { id }, run or ALONE, 0
  if run then ids = read_run(tx, run) end
  for at, of_run in ipairs(ids) do
    if tx.packed[of_run] == nil then
      -- One more than can be taken, since the rest of a run stands where its first does.
      fetch(tx, ids, at, math.min(#ids, at + share - taken))
    end
    local packed = tx.packed[of_run]
    -- Who left the run is passed over. Who waits has no worker.
    if packed and (is_lapsed or sub(packed, RUN_AT, WORKER_AT - 1) == place) then
      local flags, weight = unpack_bytes('>BI4', packed, WORKER_AT + FLAGS_AFTER)
      local is_plain, r = flags == 0 and not is_lapsed, nil
      if not is_plain then
        r = find(tx, of_run)
        weight = claim_weight(tx, r)
      end
      local is_full = taken == share
      if is_full or not fits(room, weight) then
        if not is_full then room.tasks = 0 end
        if taken > 0 then cut_run(tx, member, run, ids, at, packed, taken) end
        return taken, true
      end
      taken = taken + 1
      if is_plain then
        plain[#plain + 1] = add_claim(claims, of_run, sub(packed, WORKER_AT + 1))
      else
        hold(tx, r, params, from)
        add_claim(claims, of_run, r)
      end
    end
  end
  leave(tx, member)
  if run then spend(tx, run) end
  if not is_lapsed then tally(tx, queue, READY, -taken) end
  return taken, false
end

-- Claims up to `share` tasks of a queue, as far as the answer has room. One that does not fit ends
-- the claim: those behind it must not overtake it.
local function take(tx, from, params, share, room, claims)
  local queue, plain, taken, is_over = from.name, {}, 0, false
  local next_member = due_members(tx, queue, share)
  while not is_over and taken < share do
    local member, is_lapsed = next_member()
    if not member then break end
    local more
    more, is_over =
      take_member(tx, queue, member, is_lapsed, share - taken, room, claims, plain, params, from)
    taken = taken + more
  end
  hold_plain(tx, claims, plain, params, from)
  if taken > 0 then
    tx.turns = tx.turns + 1
    tx.served[queue] = string.format('%.0f', tx.turns)
  end
  send_index(tx)
  return taken
end

local function serve_claim(tx, params)
  local room = { tasks = params.limit, bytes = params.bytes_max, is_first = true }
  local claims, queues, is_rest = new_claims(), in_turn(tx, params.queues), false
  tx.generation = tx.generation + 1
  params.token = number_key(tx.generation) .. params.nonce
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
  return { soonest, answers_of(tx, claims.ids, claims.records, PART_CLAIM) }
end

local function claim_due(keys, args)
  local tx = begin(keys)
  local calls, at, promoted = {}, 1, {}
  while at <= #args do
    local params, queue_count = { queues = {} }, 0
    params.limit, params.bytes_max, params.lease, params.nonce, queue_count, params.worker =
      unpack_bytes(CLAIM, args[at])
    for n = 1, queue_count do
      local from = {}
      from.lease, from.lease_max, from.name = unpack_bytes(CLAIM_QUEUE, args[at + n])
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
