-- What every transition of a task writes, and the end of a function.

local function wait_until(_, r, due)
  r.status, r.due, r.claimed_at, r.worker = PENDING, due, 0, ''
end

local function end_as(tx, r, status)
  tx.finished = tx.finished + 1
  r.status, r.due, r.claimed_at, r.worker = status, 0, 0, ''
  r.finished, r.finished_at = tx.finished, tx.now
end

-- A task that outlived its expires_at.
local function expire(tx, r)
  append(tx, r, PERMANENT_FAILURE, report_expired())
  if r.status == IN_FLIGHT then r.ending = ENDING_EXPIRED end
  end_as(tx, r, DEAD)
end

local function insert(tx, r)
  tx.records[r.id], tx.changed[r.id] = r, true
  tx.index[lane_of(r.queue, ADMITTED) .. number_key(r.admitted) .. r.id] = true
  place(tx, r)
end

-- One call removes so many tasks and records of theirs at most: it keeps others waiting. One task
-- is always removed.
local REMOVED_MAX = 20000

local function may_remove(tx, r)
  local removed = tx.removed + 1 + r.next
  if tx.removed > 0 and removed > REMOVED_MAX then return false end
  tx.removed = removed
  return true
end

local function remove(tx, r)
  displace(tx, r)
  tx.records[r.id], tx.changed[r.id] = false, true
  tx.index[lane_of(r.queue, ADMITTED) .. number_key(r.admitted) .. r.id] = false
  local bodies = tx.writes[BODIES]
  bodies[r.id] = false
  bodies[progress_field(r.id)] = false
  bodies[result_field(r.id)] = false
  forget_history(tx, r)
  tx.emptied[r.queue] = true
end

-- Sends everything.
local function finish(tx)
  local fields = {}
  for id in pairs(tx.changed) do
    local r = tx.records[id]
    fields[id] = r and pack_record(r)
  end
  send_fields(tx.keys[TASKS], fields)
  send_fields(tx.keys[BODIES], tx.writes[BODIES])
  send_fields(tx.keys[HISTORY], tx.writes[HISTORY])
  send_index(tx)
  for queue in pairs(tx.emptied) do
    -- Whose turn it is among queues is remembered for those that hold tasks.
    if is_empty(tx, queue) then tx.writes[SERVED][queue] = false end
  end
  send_fields(tx.keys[SERVED], tx.writes[SERVED])
  send_state(tx)
  send_news(tx)
end
