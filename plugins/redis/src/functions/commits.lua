-- Commits: operations that all happen, or none does. Redis takes nothing back, so nothing is sent
-- before it is certain that no operation fails. What is no task's is only collected until `finish`,
-- and can be done at once. Changes of tasks may send what was collected before: so it is foreseen, in
-- the order of the operations, what each would find, and tasks change when all are known to go well.

local ENQUEUE, PUBLISH, NOTIFY, SAVE_OFFSET = 1, 2, 3, 4
local COMPARE_AND_SET, CANCEL, RESOLVE, OBSERVE = 5, 6, 7, 8
local ID_CONFLICT, CAS_CONFLICT, NO_TASK = 1, 1, 1
local of = parts_of_commits

-- The operations as steps: an operation, or a stretch of admissions. Each begins with an argument
-- that tells its kind and how many arguments follow; the ids of its tasks are added to `ids`.
local function read_steps(args, ids)
  local steps, at, number = {}, 1, 0
  while at <= #args do
    local kind, len = unpack_bytes('>BI4', args[at])
    local step = { kind = kind, at = at + 1, number = number, first_id = #ids + 1 }
    if kind == ENQUEUE then
      step.stretch = of.read_stretch(args, at + 1, ids)
      step.ids = { unpack(ids, step.first_id) }
      number = number + #step.ids
    else
      number = number + 1
      if kind == CANCEL then
        step.ids = { args[at + 1] }
      elseif kind == RESOLVE then
        step.ids = { (select(5, unpack_bytes(of.RESOLUTION, args[at + 1]))) }
      end
      if step.ids then ids[#ids + 1] = step.ids[1] end
    end
    steps[#steps + 1] = step
    at = at + 1 + len
  end
  return steps
end

-- Where a task stands by the operations so far; false if it is not there.
local function foreseen(tx, seen, id)
  local t = seen[id]
  if t == nil then
    local r = find(tx, id)
    t = r and { queue = r.queue, status = r.status, ending = r.ending, token = r.token, due = r.due }
    seen[id] = t
  end
  return t
end

-- Each answers an error's number, and which of the step's operations fails, if one does.
local foresee = {}

foresee[ENQUEUE] = function(tx, seen, step)
  local queue = step.stretch.queue
  for n, id in ipairs(step.ids) do
    local t = foreseen(tx, seen, id)
    if not t then
      seen[id] =
        { queue = queue, status = PENDING, ending = ENDING_NONE, token = NO_TOKEN, due = tx.now }
    elseif t.queue ~= queue then
      return ID_CONFLICT, n
    end
  end
end

foresee[CANCEL] = function(tx, seen, step)
  local t = foreseen(tx, seen, step.ids[1])
  if not t then return NO_TASK, 1 end
  if t.status == IN_FLIGHT then t.ending = ENDING_CANCELLED end
  if t.status <= IN_FLIGHT then t.status = CANCELLED end
end

foresee[RESOLVE] = function(tx, seen, step, args)
  local id = step.ids[1]
  local code, after = of.foresee_resolution(tx, foreseen(tx, seen, id), args[step.at])
  -- Above those of success and of a repetition.
  if code > 1 then return code, 1 end
  seen[id] = after
end

-- Each answers what its operation does.
local do_at_once = {}

do_at_once[PUBLISH] = function(tx, args, at)
  return pack('>i8', of.publish_one(tx, args[at], args[at + 1]))
end

do_at_once[NOTIFY] = function(tx, args, at)
  tx.topics[args[at]] = true
  return ''
end

do_at_once[SAVE_OFFSET] = function(tx, args, at)
  return of.save_one(tx, args[at], args[at + 1])
end

do_at_once[COMPARE_AND_SET] = function(tx, args, at)
  local revision = of.compare_and_set(tx, args[at], args[at + 1], args[at + 2])
  return revision >= 0 and pack('>i8', revision)
end

-- It was known before that nothing is recorded, and what is to be is known when all is done.
do_at_once[OBSERVE] = function() return '' end

-- Makes sure that a task which was changed in this commit is read again as it is now.
local function settle(tx, changed, id)
  if changed[id] then
    send_writes(tx)
    tx.packed[id], tx.records[id] = nil, nil
    fetch(tx, { id })
  end
  changed[id] = true
end

local change_task = {}

change_task[ENQUEUE] = function(tx, args, step)
  local answers = {}
  of.admit_stretch(tx, args, step.stretch, answers)
  return concat(answers)
end

change_task[CANCEL] = function(tx, _, step) return string.char(of.cancel_one(tx, step.ids[1])) end

change_task[RESOLVE] = function(tx, args, step) return of.resolve_packed(tx, args, step.at) end

-- The operation that failed, from 0, and an error's number, or of an observation what is recorded; or
-- -1 and the answers, one behind the other.
local function commit(keys, args)
  local tx = begin(keys)
  local ids = {}
  local steps = read_steps(args, ids)
  local first = steps[1]
  -- A repetition is told before anything else is looked at.
  local scope = first and first.kind == OBSERVE and args[first.at]
  local known = scope and of.recorded(tx, scope)
  if known then return { first.number, known } end
  fetch(tx, ids)
  local seen, answers = {}, {}
  for n, step in ipairs(steps) do
    if step.ids then
      local code, failed = foresee[step.kind](tx, seen, step, args)
      if code then return { step.number + failed - 1, code } end
    else
      answers[n] = do_at_once[step.kind](tx, args, step.at)
      if not answers[n] then return { step.number, CAS_CONFLICT } end
    end
  end
  local changed = {}
  for n, step in ipairs(steps) do
    if step.ids then
      for _, id in ipairs(step.ids) do settle(tx, changed, id) end
      answers[n] = change_task[step.kind](tx, args, step)
    end
  end
  local answer = concat(answers)
  if scope then of.record(tx, scope, args[first.at + 1], answer) end
  finish(tx)
  return { -1, answer }
end

register('commit', commit, NEEDS_SPACE)
-- Of operations that make nothing new.
register('commit_drains', commit, DRAINS)
