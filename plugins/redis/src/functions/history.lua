-- Histories: how a record is appended and what keeps them bounded. A record has a light part, which
-- claims carry, and a heavy one (detail and stack) that only whole histories show. Fields are
-- `id NUL l|h ordinal`; ordinals count the records as they came.

local SUCCESS, RETRYABLE_FAILURE, PERMANENT_FAILURE = 1, 2, 3
local LEASE_EXPIRED, OUTCOME_CANCELLED = 4, 5
-- Where a history that has too many records is folded.
local FOLD_AT = RECORDS_MAX / 2

local function light_field(id, ordinal) return id .. '\0l' .. pack('>I4', ordinal) end
local function heavy_field(id, ordinal) return id .. '\0h' .. pack('>I4', ordinal) end

-- Whether the record of this ordinal was folded into another.
local function is_folded(r, ordinal)
  return ordinal >= FOLD_AT and ordinal < FOLD_AT + r.folds
end

-- Appends the record of the claim that ends now, or of a transition without one, and counts it.
-- A report has `has_error`, `error_type`, `light` (packed error type, message and extra), `heavy`
-- and `weight`.
local append

-- A block of its own: Lua has no more than 200 names in one scope.
do
  local ATTEMPT = '>I4i8i8BBI4Bc0I4c0I4c0I4c0'
  local HEAVY = '>I4c0I4c0'
  local STARTED, ENDED, WORKER, ERROR = 1, 2, 4, 8

  local function unpack_attempt(light, heavy)
    local a = {}
    a.no, a.started_at, a.finished_at, a.outcome, a.flags, a.folded, a.worker, a.error_type,
      a.message, a.extra = unpack_bytes(ATTEMPT, light)
    a.detail, a.stack = '', ''
    if #heavy > 0 then a.detail, a.stack = unpack_bytes(HEAVY, heavy) end
    return a
  end

  local function put_attempt(tx, r, ordinal, a)
    tx.fields.history[light_field(r.id, ordinal)] = pack(
      ATTEMPT, a.no, a.started_at, a.finished_at, a.outcome, a.flags, a.folded, #a.worker,
      a.worker, #a.error_type, a.error_type, #a.message, a.message, #a.extra, a.extra)
    local is_heavy = #a.detail + #a.stack > 0
    tx.fields.history[heavy_field(r.id, ordinal)] =
      is_heavy and pack(HEAVY, #a.detail, a.detail, #a.stack, a.stack)
  end

  local function get_attempt(tx, r, ordinal)
    local light = read(tx, 'history', light_field(r.id, ordinal))
    return unpack_attempt(light, read(tx, 'history', heavy_field(r.id, ordinal)))
  end

  local function weight(a)
    return #a.error_type + #a.message + #a.detail + #a.stack + #a.extra + #a.worker
  end

  local function fold(tx, r)
    local gone_at = FOLD_AT + r.folds
    local kept, gone = get_attempt(tx, r, FOLD_AT - 1), get_attempt(tx, r, gone_at)
    kept.folded = math.min(math.max(kept.folded, 1) + math.max(gone.folded, 1), COUNT_MAX)
    kept.finished_at = gone.finished_at
    if has(kept.flags, ENDED) ~= has(gone.flags, ENDED) then
      kept.flags = kept.flags + (has(gone.flags, ENDED) and ENDED or -ENDED)
    end
    put_attempt(tx, r, FOLD_AT - 1, kept)
    tx.fields.history[light_field(r.id, gone_at)] = false
    tx.fields.history[heavy_field(r.id, gone_at)] = false
    r.folds = r.folds + 1
    r.history_bytes = r.history_bytes - weight(gone)
  end

  -- What a history loses once it weighs too much, in this order, from its oldest record on; each
  -- goes on where it stopped.
  local CUTS = {
    { 'shed_1', 'stack' }, { 'shed_2', 'detail' }, { 'shed_3', 'message' }, { 'shed_4', 'extra' },
  }

  local function shed(tx, r)
    for _, cut in ipairs(CUTS) do
      local pointer, part = cut[1], cut[2]
      while r.history_bytes > HISTORY_BYTES_MAX and r[pointer] < r.next do
        local ordinal = r[pointer]
        r[pointer] = ordinal + 1
        if not is_folded(r, ordinal) then
          local a = get_attempt(tx, r, ordinal)
          if #a[part] > 0 then
            r.history_bytes = r.history_bytes - #a[part]
            a[part] = ''
            put_attempt(tx, r, ordinal, a)
          end
        end
      end
    end
  end

  append = function(tx, r, outcome, report)
    warm(r)
    r.attempt_count = plus_one(r.attempt_count)
    r.last_no = plus_one(r.last_no)
    local is_claimed = r.status == IN_FLIGHT
    local flags = ENDED + (is_claimed and STARTED + WORKER or 0)
      + (report.has_error and ERROR or 0)
    local worker = is_claimed and r.worker or ''
    if r.next - r.folds >= RECORDS_MAX then fold(tx, r) end
    local head = pack(
      '>I4i8i8BBI4Bc0', r.last_no, is_claimed and r.claimed_at or 0, tx.now, outcome, flags, 0,
      #worker, worker)
    tx.fields.history[light_field(r.id, r.next)] = head .. report.light
    if #report.heavy > 0 then tx.fields.history[heavy_field(r.id, r.next)] = report.heavy end
    r.next = r.next + 1
    r.history_bytes = r.history_bytes + report.weight + #worker
    if has(r.flags, FINAL_ERROR) ~= report.has_error then
      r.flags = r.flags + (report.has_error and FINAL_ERROR or -FINAL_ERROR)
    end
    r.error_type = report.error_type
    shed(tx, r)
  end
end

local function report(error_type, message)
  return {
    has_error = error_type ~= '', error_type = error_type, heavy = '',
    light = pack('>I4c0I4c0I4c0', #error_type, error_type, #message, message, 0, ''),
    weight = #error_type + #message,
  }
end

-- Made when needed: a library has no string functions while it loads.
local function report_lease_expired()
  return report(TYPE_LEASE_EXPIRED, 'the lease ran out and the task was claimed again')
end

local function report_expired()
  return report(TYPE_EXPIRED, 'the task was not finished by its expires_at')
end

-- The ordinals of the newest records, oldest first.
local function newest(r, limit)
  if not r.is_warm and not has(r.flags, LIVED) then return {} end
  warm(r)
  local ordinals, ordinal = {}, r.next - 1
  while ordinal >= 0 and #ordinals < limit do
    if not is_folded(r, ordinal) then ordinals[#ordinals + 1] = ordinal end
    ordinal = ordinal - 1
  end
  local count = #ordinals
  for at = 1, math.floor(count / 2) do
    ordinals[at], ordinals[count + 1 - at] = ordinals[count + 1 - at], ordinals[at]
  end
  return ordinals
end

-- The parts of these records as they lie, by what names their fields.
local function parts(tx, r, ordinals, field_of)
  local answer, written = {}, tx.fields.history
  for first = 1, #ordinals, ARGUMENTS_MAX do
    local last = math.min(first + ARGUMENTS_MAX - 1, #ordinals)
    local fields = {}
    for at = first, last do fields[#fields + 1] = field_of(r.id, ordinals[at]) end
    local stored = call('HMGET', tx.keys.history, unpack(fields))
    for at, field in ipairs(fields) do
      local value = stored[at]
      if written[field] ~= nil then value = written[field] end
      answer[#answer + 1] = value or ''
    end
  end
  return answer
end

local function forget_history(tx, r)
  warm(r)
  for ordinal = 0, r.next - 1 do
    if not is_folded(r, ordinal) then
      tx.fields.history[light_field(r.id, ordinal)] = false
      tx.fields.history[heavy_field(r.id, ordinal)] = false
    end
  end
end
