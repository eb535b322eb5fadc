-- What every transition of a task writes, and the end of a function.

-- Sends what was collected of tasks.
local function send_writes(tx)
  local stored = tx.stored
  local count = #stored
  for _, r in ipairs(tx.dirty) do
    stored[count + 1], stored[count + 2] = r.id, pack_record(r)
    count = count + 2
    r.is_dirty = false
  end
  send('HSET', tx.keys.tasks, stored)
  send('HDEL', tx.keys.tasks, tx.gone)
  send('HSET', tx.keys.bodies, tx.bodies)
  send('HDEL', tx.keys.bodies, tx.gone)
  send_fields(tx.keys.bodies, tx.fields.bodies)
  send_fields(tx.keys.history, tx.fields.history)
  send_index(tx)
  send_tallies(tx)
  begin_writes(tx)
end

local function wait_until(_, r, due)
  r.status, r.due, r.claimed_at, r.worker = PENDING, due, 0, ''
end

local function end_as(tx, r, status)
  warm(r)
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

-- Changes a task and its places with it: every change of a stored task but a claim goes through
-- here.
local function change(tx, r, apply, ...)
  -- What is collected of it would be sent in another order.
  if r.is_dirty then send_writes(tx) end
  displace(tx, r)
  apply(tx, r, ...)
  place(tx, r)
  touch_record(tx, r)
end

-- One call removes so many tasks and records of theirs at most: it keeps others waiting. One task
-- is always removed.
local REMOVED_MAX = 20000

local function may_remove(tx, r)
  warm(r)
  local removed = tx.removed + 1 + r.next
  if tx.removed > 0 and removed > REMOVED_MAX then return false end
  tx.removed = removed
  return true
end

local function remove(tx, r)
  if r.is_dirty then send_writes(tx) end
  displace(tx, r)
  tx.records[r.id], tx.packed[r.id] = false, false
  tx.gone[#tx.gone + 1] = r.id
  if r.page == ALONE then
    leave(tx, lane_of(r.queue, ADMITTED) .. admission_key(r) .. r.id)
  else
    depart(tx, r.page, ADMITTED, r.queue, 0, r.order, 1)
  end
  if has(r.flags, LIVED) then
    local bodies = tx.fields.bodies
    bodies[progress_field(r.id)] = false
    bodies[result_field(r.id)] = false
    forget_history(tx, r)
  end
  tx.emptied[r.queue] = true
end

-- Sends everything.
local function finish(tx)
  send_writes(tx)
  for queue in pairs(tx.emptied) do
    -- Whose turn it is among queues is remembered for those that hold tasks.
    if is_empty(tx, queue) then tx.served[queue] = false end
  end
  send_fields(tx.keys.served, tx.served)
  rows.send(tx)
  send_state(tx)
  send_news(tx)
end
