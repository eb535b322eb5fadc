-- Records: a row each, `space NUL key`, which stays without its value when the record is removed, so
-- that its revisions go on. `names` has the records that are there, in the order of the bytes.

-- Revision; the number of its making, 0 once it is removed; when it was set. The value follows.
local RECORD_HEAD = '>i8i8i8'
local RECORD_HEAD_LEN = 24
local CHANGE = '>Bi8' -- whether there is a value; the revision that is expected
local RECORDS = '>i8I4i8' -- newest, or -1 at the beginning; limit; bytes
local CONFLICT = -1

-- Changes a record, and answers its revision, or that it has another than is expected.
local function compare_and_set(tx, name, change, value)
  local has_value, expected = unpack_bytes(CHANGE, change)
  local last, made = 0, 0
  local packed = rows.get(tx, 'records', name)
  if packed then last, made = unpack_bytes(RECORD_HEAD, packed) end
  local revision = made > 0 and last or 0
  if revision ~= expected or (has_value == 0 and revision == 0) then return CONFLICT end
  if has_value == 0 then
    rows.put(tx, 'records', name, pack(RECORD_HEAD, last, 0, tx.now))
    rows.rank(tx, 'names', name, false)
    return last
  end
  if made == 0 then
    -- They share a number with tasks, which only grows.
    tx.admitted = tx.admitted + 1
    made = tx.admitted
    rows.rank(tx, 'names', name, 0)
  end
  rows.put(tx, 'records', name, pack(RECORD_HEAD, last + 1, made, tx.now) .. value)
  return last + 1
end

parts_of_commits.compare_and_set = compare_and_set

-- Changes come as three arguments each.
local function change_records(keys, args)
  local tx = begin(keys)
  local answers = {}
  for at = 1, #args, 3 do
    answers[#answers + 1] = compare_and_set(tx, args[at], args[at + 1], args[at + 2])
  end
  finish(tx)
  return answers
end

local function get_record(keys, args)
  local tx = begin(keys)
  local packed = rows.get(tx, 'records', args[1])
  return packed and select(2, unpack_bytes(RECORD_HEAD, packed)) > 0 and packed
end

-- A page: what was made when the list began at most; whether there is more behind it; the last name
-- that was looked at; and the records, each name and row.
local function list_records(keys, args)
  local tx = begin(keys)
  local newest, limit, room = unpack_bytes(RECORDS, args[1])
  if newest < 0 then newest = tx.admitted end
  local from, to = args[2], args[3]
  local answer, found, bytes, examined, last = { newest, 1, '' }, 0, 0, 0, ''
  local function done(more)
    answer[2], answer[3] = more, last
    return answer
  end
  while true do
    local count = rows.at_once(found, bytes, room, limit + 1)
    local names = call('ZRANGEBYLEX', tx.keys.names, from, to, 'LIMIT', 0, count)
    if #names == 0 then return done(0) end
    local packed = call('HMGET', tx.keys.records, unpack(names))
    for at, name in ipairs(names) do
      if found == limit or examined == EXAMINED_MAX then return done(1) end
      local _, made = unpack_bytes(RECORD_HEAD, packed[at])
      if made <= newest then
        bytes = bytes + #name + #packed[at] - RECORD_HEAD_LEN
        if found > 0 and bytes > room then return done(1) end
        found = found + 1
        answer[#answer + 1], answer[#answer + 2] = name, packed[at]
      end
      examined, last = examined + 1, name
    end
    if #names < count then return done(0) end
    from = '(' .. last
  end
end

register('compare_and_set', change_records, NEEDS_SPACE)
-- Of removals alone.
register('remove_records', change_records, DRAINS)
register('get_record', get_record, READS)
register('list_records', list_records, READS)
