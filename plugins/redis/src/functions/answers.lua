-- Tasks as they are answered, and pages of them. Each walk looks at a bounded number of tasks,
-- since nobody else is served meanwhile.

local EXAMINED_MAX = 2000
local CHUNK = 200
local PART_NONE, PART_FINAL, PART_WHOLE, PART_CLAIM = 0, 1, 2, 3
-- What a record of the history weighs in an answer beside its text: numbers and instants.
local ATTEMPT_BYTES = 48
local LIGHT_HEAD = 26 + 1 + 12 -- of a light part, its numbers and lengths

local function light_weight(lights)
  local bytes = 0
  for _, light in ipairs(lights) do bytes = bytes + #light - LIGHT_HEAD + ATTEMPT_BYTES end
  return bytes
end

local function bodies_of(tx, fields)
  local values = {}
  for first = 1, #fields, ARGUMENTS_MAX do
    local last = math.min(first + ARGUMENTS_MAX - 1, #fields)
    local stored = call('HMGET', tx.keys.bodies, unpack(fields, first, last))
    for at = 1, last - first + 1 do values[first + at - 1] = stored[at] end
  end
  return values
end

local PART_LIMITS = { [PART_FINAL] = 1, [PART_CLAIM] = CLAIM_ATTEMPTS_MAX }

-- The records of a history that a part of it shows, each light and heavy.
local function history_of(tx, r, part)
  local limit = PART_LIMITS[part]
  if limit then return parts(tx, r, newest(r, limit), light_field), {} end
  if part ~= PART_WHOLE then return {}, {} end
  local ordinals = newest(r, COUNT_MAX)
  return parts(tx, r, ordinals, light_field), parts(tx, r, ordinals, heavy_field)
end

-- What a task weighs in an answer.
local function answer_weight(tx, r, part)
  if not has(r.flags, LIVED) or part == PART_NONE then return r.weight end
  if part == PART_WHOLE then
    warm(r)
    return r.weight + r.history_bytes + ATTEMPT_BYTES * (r.next - r.folds)
  end
  return r.weight + light_weight((history_of(tx, r, part)))
end

-- Tasks as they are answered: id, record, body; and of those that lived, the rest. Records that are
-- packed are of those that did not.
local function answers_of(tx, ids, records, part)
  local answer, at = {}, 0
  local bodies = bodies_of(tx, ids)
  for n, r in ipairs(records) do
    local id = ids[n]
    answer[at + 1], answer[at + 2], answer[at + 3] = id, r, bodies[n]
    at = at + 3
    if type(r) == 'table' then
      answer[at - 1] = pack_record(r)
      if has(r.flags, LIVED) then
        local more = bodies_of(tx, { progress_field(id), result_field(id) })
        local lights, heavies = history_of(tx, r, part)
        at = at + 1
        answer[at] = { more[1], more[2], lights, heavies }
      end
    end
  end
  return answer
end

-- Walks a lane from the newest to the oldest below a number, which `number_of` knows of a record.
-- `visit` answers false to stop before the task. The answer is the number to go on below, or -1 at
-- the lane's end.
local function walk(tx, queue, lane, before, number_of, visit)
  local to, from = '(' .. lane_of(queue, lane) .. number_key(before), '[' .. lane_of(queue, lane)
  local last, examined = -1, 0
  while true do
    local members =
      call('ZREVRANGEBYLEX', tx.keys.index, to, from, 'LIMIT', 0, CHUNK)
    local alone = {}
    for _, member in ipairs(members) do alone[#alone + 1] = id_of(member, queue, 8) end
    fetch(tx, alone)
    for _, member in ipairs(members) do
      local id, run = id_of(member, queue, 8)
      local ids = { id }
      if run then
        ids = read_run(tx, run)
        fetch(tx, ids)
      end
      for at = #ids, 1, -1 do
        local r = find(tx, ids[at])
        -- A run may begin below the number and end above it.
        if r and (not run or r.page == run) and number_of(r) < before then
          if examined >= EXAMINED_MAX or not visit(r) then return last end
          examined = examined + 1
          last = number_of(r)
        end
      end
    end
    if #members < CHUNK then return -1 end
    to = '(' .. members[#members]
  end
end

local function death_of(r)
  warm(r)
  return r.finished
end

-- A page of what `lets_through` picks.
local function page(tx, queue, lane, number_of, params, lets_through)
  local ids, records, bytes = {}, {}, 0
  local is_over = false
  local rest = walk(tx, queue, lane, params.before, number_of, function(r)
    if #records >= params.limit then return false end
    local passes = lets_through(r)
    if passes == nil then
      is_over = true
      return false
    end
    if not passes then return true end
    local weight = answer_weight(tx, r, params.part)
    if bytes + weight > params.bytes_max and #records > 0 then return false end
    bytes = bytes + weight
    ids[#ids + 1], records[#records + 1] = r.id, r
    return true
  end)
  return { is_over and -1 or rest, answers_of(tx, ids, records, params.part) }
end
