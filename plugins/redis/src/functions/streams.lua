-- Streams. A call is alone while it runs, and what it publishes is there when it ends: so offsets have
-- no gaps, and which events are there is told by two numbers, which outlive them. `streams` has
-- these by stream, and what consumers saved by `stream NUL consumer`; `events` has the events by
-- `stream NUL offset`.

local STREAM = '>I8I8' -- the offset of the first event that is left, or of the next; the last offset
local READ = '>BI8I4I8Bc0Bc0' -- whether from a consumer's; offset; limit; bytes; stream; consumer
local TRIM = '>I8I4Bc0' -- horizon; limit; stream
-- What an event has before its key and payload: when it was published, and the key's length.
local EVENT_HEAD_LEN = 13
local NONE_SAVED = '\0\0\0\0\0\0\0\0'

local function stream_of(tx, name)
  local packed = rows.get(tx, 'streams', name)
  if not packed then return 1, 0 end
  return unpack_bytes(STREAM, packed)
end

local function event_field(name, offset) return name .. '\0' .. number_key(offset) end

-- Appends an event, which comes packed but for its time, and answers its offset.
local function publish_one(tx, name, event)
  local first, last = stream_of(tx, name)
  last = last + 1
  rows.put(tx, 'streams', name, pack(STREAM, first, last))
  rows.put(tx, 'events', event_field(name, last), pack('>i8', tx.now) .. event)
  tx.topics['s' .. name] = true
  return last
end

local function saved_field(name, consumer) return name .. '\0' .. consumer end

-- Saves an offset, and answers what is saved: eight bytes, since Lua's numbers have fewer, and no text
-- either, since text is compared as the host's language has it.
local function save_one(tx, field, offset)
  local saved = rows.get(tx, 'streams', field) or NONE_SAVED
  local saved_high, saved_low = unpack_bytes('>I4I4', saved)
  local high, low = unpack_bytes('>I4I4', offset)
  if high < saved_high or (high == saved_high and low <= saved_low) then return saved end
  rows.put(tx, 'streams', field, offset)
  return offset
end

parts_of_commits.publish_one, parts_of_commits.save_one = publish_one, save_one

-- Events come as two arguments each.
local function publish(keys, args)
  local tx = begin(keys)
  local answers = {}
  for at = 1, #args, 2 do answers[#answers + 1] = publish_one(tx, args[at], args[at + 1]) end
  finish(tx)
  return answers
end

-- Saves come as two arguments each.
local function save_offsets(keys, args)
  local tx = begin(keys)
  local answers = {}
  for at = 1, #args, 2 do answers[#answers + 1] = save_one(tx, args[at], args[at + 1]) end
  finish(tx)
  return answers
end

local function offset(keys, args)
  local tx = begin(keys)
  return rows.get(tx, 'streams', args[1]) or NONE_SAVED
end

-- The offset of the first event of the answer, and events.
local function read_events(keys, args)
  local tx = begin(keys)
  local of_consumer, after, limit, room, name, consumer = unpack_bytes(READ, args[1])
  if of_consumer == 1 then
    -- Inexact only beyond what any stream reaches.
    after = (unpack_bytes('>I8', rows.get(tx, 'streams', saved_field(name, consumer)) or NONE_SAVED))
  end
  local first, last = stream_of(tx, name)
  first = math.max(first, after + 1)
  limit = math.min(limit, last - first + 1)
  local answer, found, bytes = { first }, 0, 0
  while found < limit do
    local fields = {}
    for n = 0, rows.at_once(found, bytes, room, limit) - 1 do
      fields[n + 1] = event_field(name, first + found + n)
    end
    for _, event in ipairs(call('HMGET', tx.keys.events, unpack(fields))) do
      bytes = bytes + #event - EVENT_HEAD_LEN
      if found > 0 and bytes > room then return answer end
      found = found + 1
      answer[found + 1] = event
    end
  end
  return answer
end

-- How many events went, and whether more are to go.
local function trim(keys, args)
  local tx = begin(keys)
  local horizon, limit, name = unpack_bytes(TRIM, args[1])
  local first, last = stream_of(tx, name)
  horizon = math.min(horizon, last)
  local stop = math.min(horizon, first + limit - 1)
  if stop < first then return { 0, 0 } end
  for at = first, stop do rows.put(tx, 'events', event_field(name, at), false) end
  rows.put(tx, 'streams', name, pack(STREAM, stop + 1, last))
  finish(tx)
  return { stop - first + 1, stop < horizon and 1 or 0 }
end

-- Topics, each a letter and a name. Nothing of it is stored.
local function notify(keys, args)
  local tx = begin(keys)
  for _, topic in ipairs(args) do tx.topics[topic] = true end
  send_news(tx)
  return 0
end

register('publish', publish, NEEDS_SPACE)
register('save_offsets', save_offsets, DRAINS)
register('offset', offset, READS)
register('read_events', read_events, READS)
register('trim', trim, DRAINS)
register('notify', notify, DRAINS)
