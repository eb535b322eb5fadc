-- Cancellation: the end of what waits, and of what is taken from its holder.

local function cancel_record(tx, r)
  if r.status == IN_FLIGHT then
    append(tx, r, OUTCOME_CANCELLED, report('', ''))
    r.ending = ENDING_CANCELLED
  end
  end_as(tx, r, CANCELLED)
end

-- Its status, and 10 more if this call made it so; -1 for a task that is not there.
local function cancel_one(tx, id)
  local r = find(tx, id)
  if not r then return -1 end
  if r.status > IN_FLIGHT then return r.status end
  change(tx, r, cancel_record)
  return 10 + CANCELLED
end

local function cancel(keys, args)
  local tx = begin(keys)
  fetch(tx, args)
  local answers = {}
  for n, id in ipairs(args) do answers[n] = cancel_one(tx, id) end
  finish(tx)
  return answers
end

parts_of_commits.cancel_one = cancel_one

register('cancel', cancel, DRAINS)
