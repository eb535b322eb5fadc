-- Tasks as they are answered, and pages of them. Each walk looks at a bounded number of tasks,
-- since nobody else is served meanwhile.

local EXAMINED_MAX = 2000
local CHUNK = 200
local PART_FINAL, PART_WHOLE = 1, 2
-- What a record of the history weighs in an answer beside its text: numbers and instants.
local ATTEMPT_BYTES = 48
local LIGHT_HEAD = 26 + 1 + 12 -- of a light part, its numbers and lengths

local function light_weight(lights)
  local bytes = 0
  for _, light in ipairs(lights) do bytes = bytes + #light - LIGHT_HEAD + ATTEMPT_BYTES end
  return bytes
end

local function bodies_of(tx, records)
  local fields, values = {}, {}
  for _, r in ipairs(records) do
    fields[#fields + 1] = r.id
    fields[#fields + 1] = progress_field(r.id)
    fields[#fields + 1] = result_field(r.id)
  end
  for first = 1, #fields, ARGUMENTS_MAX do
    local last = math.min(first + ARGUMENTS_MAX - 1, #fields)
    local stored = redis.call('HMGET', tx.keys[BODIES], unpack(fields, first, last))
    for _, value in ipairs(stored) do values[#values + 1] = value end
  end
  return values
end

local function all_ordinals(r) return newest(r, r.next) end

-- A task as it is answered, and what it weighs.
local function answer_of(tx, r, part)
  local lights, heavies = {}, {}
  local bytes = r.envelope_len + r.progress_len + r.result_len
  if part == PART_FINAL then
    lights = parts(tx, r, newest(r, 1), light_field)
    bytes = bytes + light_weight(lights)
  elseif part == PART_WHOLE then
    local ordinals = all_ordinals(r)
    lights, heavies = parts(tx, r, ordinals, light_field), parts(tx, r, ordinals, heavy_field)
    bytes = bytes + r.history_bytes + ATTEMPT_BYTES * #ordinals
  end
  return { r.id, pack_record(r), false, false, false, lights, heavies, 0 }, bytes
end

local function fill_bodies(tx, records, answers)
  local bodies = bodies_of(tx, records)
  for at, answer in ipairs(answers) do
    answer[3], answer[4], answer[5] = bodies[3 * at - 2], bodies[3 * at - 1], bodies[3 * at]
  end
  return answers
end

-- Walks a lane from the newest to the oldest below a number. `visit` answers false to stop before
-- the task. The answer is the number to go on below, or -1 at the lane's end.
local function walk(tx, queue, lane, before, visit)
  local to, from = '(' .. lane_of(queue, lane) .. number_key(before), '[' .. lane_of(queue, lane)
  local last, examined = -1, 0
  while true do
    local members =
      redis.call('ZREVRANGEBYLEX', tx.keys[INDEX], to, from, 'LIMIT', 0, CHUNK)
    local ids = {}
    for at, member in ipairs(members) do ids[at] = id_of(member, queue, 8) end
    fetch(tx, ids)
    for at, member in ipairs(members) do
      if examined == EXAMINED_MAX or not visit(find(tx, ids[at])) then return last end
      examined = examined + 1
      last = struct.unpack('>I8', key_of(member, queue, 1, 8))
    end
    if #members < CHUNK then return -1 end
    to = '(' .. members[#members]
  end
end

-- A page of what `lets_through` picks.
local function page(tx, queue, lane, params, lets_through)
  local records, answers, bytes = {}, {}, 0
  local is_over = false
  local rest = walk(tx, queue, lane, params.before, function(r)
    if #answers >= params.limit then return false end
    local passes = lets_through(r)
    if passes == nil then
      is_over = true
      return false
    end
    if not passes then return true end
    local answer, weight = answer_of(tx, r, params.part)
    if bytes + weight > params.bytes_max and #answers > 0 then return false end
    bytes = bytes + weight
    records[#records + 1], answers[#answers + 1] = r, answer
    return true
  end)
  return { is_over and -1 or rest, fill_bodies(tx, records, answers) }
end
