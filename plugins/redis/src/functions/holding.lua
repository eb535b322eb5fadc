-- What becomes of claims: kept, or ended by their holder.

local CLAIM_REF = '>c16Bc0'
local EXTEND = '>i8i8BBc16Bc0'
local RESOLUTION = '>BBBc16Bc0'
-- What a resolution has that is more than an end without a word.
local MORE = '>Bi8BI4I4c0'
local IS_STRICT, FORGETS, HAS_MORE = 1, 2, 4
local SUCCEED, RETRY, DIE, GIVE_BACK = 0, 1, 2, 3
local OK, REPLAYED, NOT_FOUND, STALE, STALE_CANCELLED, STALE_EXPIRED = 0, 1, 2, 3, 4, 5

-- Where a claim stands: OK if it holds the task, REPLAYED if this call ended it, or the refusal.
local function standing(tx, r, token, is_strict, call)
  if r.token ~= token then return STALE end
  if r.ending == ENDING_CANCELLED then return STALE_CANCELLED end
  if r.ending == ENDING_EXPIRED then return STALE_EXPIRED end
  if r.ending ~= ENDING_NONE then return r.ending == call and REPLAYED or STALE end
  if r.status ~= IN_FLIGHT or (is_strict and r.due <= tx.now) then return STALE end
  return OK
end

local function keep(tx, r, ends_at, progress)
  r.due = ends_at
  if progress then set_progress(tx, r, progress) end
end

local function extend_leases(keys, args)
  local tx = begin(keys)
  local calls, ids = {}, {}
  for at = 1, #args, 2 do
    local c = { progress = args[at + 1] }
    c.lease, c.held_max, c.is_strict, c.has_progress, c.token, c.id =
      unpack_bytes(EXTEND, args[at])
    calls[#calls + 1], ids[#ids + 1] = c, c.id
  end
  fetch(tx, ids)
  local answers = {}
  for n, c in ipairs(calls) do
    local r = find(tx, c.id)
    local code, ends_at = NOT_FOUND, 0
    if r then code = standing(tx, r, c.token, c.is_strict == 1, -1) end
    if code == OK then
      ends_at = instant(tx.now + c.lease)
      if c.held_max >= 0 then ends_at = math.min(ends_at, instant(r.claimed_at + c.held_max)) end
      change(tx, r, keep, ends_at, c.has_progress == 1 and c.progress)
    end
    answers[n] = pack('>Bi8I8', code, ends_at, math.max(ends_at - tx.now, 0))
  end
  finish(tx)
  return answers
end

local function resolve_record(tx, r, c)
  if c.outcome == SUCCEED then
    append(tx, r, SUCCESS, c)
    set_result(tx, r, c.result)
    end_as(tx, r, SUCCEEDED)
  elseif c.outcome == RETRY then
    append(tx, r, RETRYABLE_FAILURE, c)
    wait_until(tx, r, moment(tx, c.is_delay, c.due))
  elseif c.outcome == DIE then
    append(tx, r, PERMANENT_FAILURE, c)
    end_as(tx, r, DEAD)
  else
    warm(r)
    wait_until(tx, r, math.max(moment(tx, c.is_delay, c.due), tx.now))
  end
  r.ending, r.ending_status, r.ending_due = c.call, r.status, r.due
end

local function resolve_one(tx, id, token, c)
  local r = find(tx, id)
  if not r then return NOT_FOUND, 0, 0 end
  local code = standing(tx, r, token, has(c.flags, IS_STRICT), c.call)
  if code == REPLAYED then
    warm(r)
    return code, r.ending_status, r.ending_due
  end
  if code ~= OK then return code, 0, 0 end
  if c.outcome == SUCCEED and has(c.flags, FORGETS) then
    remove(tx, r)
    return OK, SUCCEEDED, 0
  end
  change(tx, r, resolve_record, c)
  return OK, r.ending_status, r.ending_due
end

-- Completes and removes a plain task that was claimed in a run, as `resolve_one` would; says whether
-- it did.
local function forget_plain(tx, id, token)
  local packed = tx.packed[id]
  if not packed or tx.records[id] then return false end
  if sub(packed, TOKEN_AT, RUN_AT - 1) ~= token then return false end
  local status, ending = byte(packed, 1, 2)
  local run = sub(packed, RUN_AT, WORKER_AT - 1)
  local after = WORKER_AT + byte(packed, WORKER_AT)
  local flags = byte(packed, after + FLAGS_AFTER)
  if status ~= IN_FLIGHT or ending ~= ENDING_NONE or flags ~= 0 or run == ALONE then return false end
  local page = sub(packed, after + 1, after + 8)
  local of_run, of_page = tx.departed[run], tx.departed[page]
  if page == ALONE or not of_run or not of_page then
    -- The first of its run says what there is to know of it.
    remove(tx, find(tx, id))
    return true
  end
  of_run.count, of_page.count = of_run.count + 1, of_page.count + 1
  tx.packed[id] = false
  tx.gone[#tx.gone + 1] = id
  return true
end

-- What a worker had to say, which follows in four arguments.
local function read_more(args, at)
  local c = { light = args[at + 1], heavy = args[at + 2], result = args[at + 3] }
  local has_error
  c.is_delay, c.due, has_error, c.weight, c.error_type = unpack_bytes(MORE, args[at])
  c.has_error = has_error == 1
  return c
end

-- What most resolutions say, who end without a word.
local function nothing_more()
  local c = report('', '')
  c.is_delay, c.due, c.result = 1, 0, ''
  return c
end

local function resolve(keys, args)
  local tx = begin(keys)
  local ids, tokens, heads, mores, at, count = {}, {}, {}, {}, 1, 0
  while at <= #args do
    count = count + 1
    heads[count] = args[at]
    local _, flags
    _, _, flags, tokens[count], ids[count] = unpack_bytes(RESOLUTION, args[at])
    at = at + 1
    if has(flags, HAS_MORE) then
      mores[count] = read_more(args, at)
      at = at + 4
    end
  end
  fetch(tx, ids)
  local wordless = nothing_more()
  local answers, forgotten = {}, pack('>BBi8', OK, SUCCEEDED, 0)
  for n, head in ipairs(heads) do
    local call, outcome, flags = byte(head, 1, 3)
    if outcome == SUCCEED and flags == FORGETS and forget_plain(tx, ids[n], tokens[n]) then
      answers[n] = forgotten
    else
      local c = mores[n] or wordless
      c.call, c.outcome, c.flags = call, outcome, flags
      answers[n] = pack('>BBi8', resolve_one(tx, ids[n], tokens[n], c))
    end
  end
  finish(tx)
  return concat(answers)
end

-- How much of each lease is left; -1 for a claim that is not live.
local function live_claims(keys, args)
  local tx = begin(keys)
  local calls, ids = {}, {}
  for n, packed in ipairs(args) do
    local c = {}
    c.token, c.id = unpack_bytes(CLAIM_REF, packed)
    calls[n], ids[n] = c, c.id
  end
  fetch(tx, ids)
  local answers = {}
  for n, c in ipairs(calls) do
    local r = find(tx, c.id)
    local is_live = r and standing(tx, r, c.token, true, -1) == OK
    answers[n] = is_live and r.due - tx.now or -1
  end
  return answers
end

-- The status that an outcome leaves.
local STATUSES = { [SUCCEED] = SUCCEEDED, [RETRY] = PENDING, [DIE] = DEAD, [GIVE_BACK] = PENDING }

-- How a resolution would end for a task that stands so, which stands as it would leave it then; the
-- second answer is false once it is not there.
function parts_of_commits.foresee_resolution(tx, t, packed)
  local call, outcome, flags, token = unpack_bytes(RESOLUTION, packed)
  if not t then return NOT_FOUND end
  local code = standing(tx, t, token, has(flags, IS_STRICT), call)
  if code ~= OK then return code, t end
  if outcome == SUCCEED and has(flags, FORGETS) then return OK, false end
  t.ending, t.status = call, STATUSES[outcome]
  return OK, t
end

-- Resolves as `resolve` would one.
function parts_of_commits.resolve_packed(tx, args, at)
  local call, outcome, flags, token, id = unpack_bytes(RESOLUTION, args[at])
  local c = has(flags, HAS_MORE) and read_more(args, at + 1) or nothing_more()
  c.call, c.outcome, c.flags = call, outcome, flags
  return pack('>BBi8', resolve_one(tx, id, token, c))
end

parts_of_commits.RESOLUTION = RESOLUTION

register('extend_leases', extend_leases, DRAINS)
register('resolve', resolve, DRAINS)
register('live_claims', live_claims, READS)
