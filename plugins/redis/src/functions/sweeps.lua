-- Maintenance of a queue: what has expired dies, and what was kept long enough goes.

local SWEEP = '>BI4Bi8Bi8BBi8Bc0'
local KEEP, LONGER_THAN, BEFORE = 0, 1, 2

local function is_old(tx, r, kind, value)
  if kind == LONGER_THAN then return instant(r.finished_at + value) <= tx.now end
  return r.finished_at < value
end

-- Takes the tasks of a lane in its order while `is_due`, at most `limit` and as far as `apply` goes;
-- says whether there is more.
local function sweep_lane(tx, queue, lane, key_len, limit, is_due, apply)
  local members = range(tx, queue, lane, limit + 1)
  local ids, done = {}, 0
  for at, member in ipairs(members) do ids[at] = id_of(member, queue, key_len) end
  fetch(tx, ids)
  for _, id in ipairs(ids) do
    local r = find(tx, id)
    warm(r)
    if not is_due(r) then break end
    if done == limit or not apply(r) then
      send_writes(tx)
      return done, true
    end
    done = done + 1
  end
  send_writes(tx)
  return done, false
end

local function sweep(keys, args)
  local tx = begin(keys)
  local p = {}
  p.expires, p.limit, p.succeeded, p.succeeded_age, p.cancelled, p.cancelled_age, p.dead,
    p.dead_of_queue, p.dead_age, p.queue = unpack_bytes(SWEEP, args[1])
  local expired, removed, has_more = 0, 0, false
  local function run(lane, key_len, is_due, apply)
    local done, more =
      sweep_lane(tx, p.queue, lane, key_len, p.limit - expired - removed, is_due, apply)
    has_more = has_more or more
    return done
  end
  local function remove_kept(r)
    local may = may_remove(tx, r)
    if may then remove(tx, r) end
    return may
  end
  if p.expires == 1 then
    local function is_due(r) return r.expires_at <= tx.now end
    expired = run(EXPIRING, BY_TIME_LEN, is_due, function(r)
      change(tx, r, expire)
      return true
    end)
  end
  for _, kept in ipairs({
    { FINISHED[SUCCEEDED], p.succeeded, p.succeeded_age },
    { FINISHED[CANCELLED], p.cancelled, p.cancelled_age },
    { DEAD_OF_QUEUE, p.dead_of_queue, p.dead_age },
  }) do
    if kept[2] ~= KEEP then
      local function is_due(r) return is_old(tx, r, kept[2], kept[3]) end
      removed = removed + run(kept[1], 8, is_due, remove_kept)
    end
  end
  if p.dead == 1 then
    local function is_due(r) return instant(r.finished_at + r.retention) <= tx.now end
    removed = removed + run(DEAD_OWN, BY_TIME_LEN, is_due, remove_kept)
  end
  finish(tx)
  return { expired, removed, has_more and 1 or 0 }
end

register('sweep', sweep, DRAINS)
