-- Claims: how they are taken. Keeping and ending them is elsewhere.

local CLAIM = '>I4I8i8c8I4Bc0'
local CLAIM_QUEUE = '>i8i8Bc0'
-- The first of what is due in a queue, in the order of claims: two lanes, merged.
local function first_due(tx, queue, limit)
  local ready = range(tx, queue, READY, limit)
  local lapsed = range(tx, queue, LAPSED, limit)
  local ids, i, j = {}, 1, 1
  local function key(member)
    return struct.unpack(ORDER, key_of(member, queue, 1, ORDER_LEN))
  end
  while #ids < limit and (ready[i] or lapsed[j]) do
    local is_lapsed = not ready[i]
    if ready[i] and lapsed[j] then
      -- As numbers: Lua compares strings by the server's locale.
      local a1, a2, a3 = key(ready[i])
      local b1, b2, b3 = key(lapsed[j])
      is_lapsed = b1 < a1 or (b1 == a1 and (b2 < a2 or (b2 == a2 and b3 < a3)))
    end
    local member
    if is_lapsed then member, j = lapsed[j], j + 1 else member, i = ready[i], i + 1 end
    ids[#ids + 1] = id_of(member, queue, ORDER_LEN)
  end
  return ids
end

-- The queues, the one first that was served least recently: claims that take one task are fair too.
local function in_turn(tx, queues)
  if #queues < 2 then return queues end
  local names = {}
  for at, from in ipairs(queues) do names[at] = from.name end
  local served = redis.call('HMGET', tx.keys[SERVED], unpack(names))
  for at, from in ipairs(queues) do
    from.at = at
    from.turn = tonumber(tx.writes[SERVED][from.name] or served[at] or 0)
  end
  table.sort(queues, function(a, b)
    if a.turn ~= b.turn then return a.turn < b.turn end
    return a.at < b.at
  end)
  return queues
end

local function hold(tx, r, params, lease)
  if r.status == IN_FLIGHT then
    append(tx, r, LEASE_EXPIRED, report_lease_expired())
    r.lease_expired_count = plus_one(r.lease_expired_count)
  end
  tx.generation = tx.generation + 1
  r.generation, r.nonce, r.ending = tx.generation, params.nonce, ENDING_NONE
  r.status, r.claimed_at, r.worker = IN_FLIGHT, tx.now, params.worker
  r.due = instant(tx.now + lease)
end

-- Claims up to `share` tasks of a queue, as far as the answer has room. One that does not fit ends
-- the claim: those behind it must not overtake it.
local function take(tx, from, params, share, room, claims)
  local ids = first_due(tx, from.name, share)
  fetch(tx, ids)
  local taken = 0
  for _, id in ipairs(ids) do
    local r = find(tx, id)
    local lights = parts(tx, r, newest(r, CLAIM_ATTEMPTS_MAX), light_field)
    local bytes = r.envelope_len + r.progress_len + r.result_len + light_weight(lights)
    if r.status == IN_FLIGHT then
      bytes = bytes + report_lease_expired().weight + #r.worker + ATTEMPT_BYTES
    end
    if not room.is_first and bytes > room.bytes then
      room.tasks = 0
      break
    end
    room.is_first, room.bytes, room.tasks = false, room.bytes - bytes, room.tasks - 1
    local was_lapsed = r.status == IN_FLIGHT
    local lease = params.lease >= 0 and params.lease or (r.lease >= 0 and r.lease or from.lease)
    lease = math.min(lease, from.lease_max)
    change(tx, r, hold, params, lease)
    if was_lapsed then lights = parts(tx, r, newest(r, CLAIM_ATTEMPTS_MAX), light_field) end
    taken = taken + 1
    claims[#claims + 1] = { record = r, lease = lease, lights = lights }
  end
  send_index(tx)
  if taken > 0 then
    tx.turns = tx.turns + 1
    tx.writes[SERVED][from.name] = string.format('%.0f', tx.turns)
  end
  return taken
end

local function claim_answer(tx, claims)
  local records = {}
  for at, claim in ipairs(claims) do records[at] = claim.record end
  local bodies, answer = bodies_of(tx, records), {}
  for at, claim in ipairs(claims) do
    local r = claim.record
    answer[at] = {
      r.id, pack_record(r), bodies[3 * at - 2], bodies[3 * at - 1], bodies[3 * at], claim.lights,
      {}, claim.lease,
    }
  end
  return answer
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
  return { soonest, claim_answer(tx, claims) }
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
