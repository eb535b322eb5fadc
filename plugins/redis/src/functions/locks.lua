-- Locks: a row each, which stays when the lock is released, so that its generations grow for ever.
-- Nothing has a TTL: a hold is over once the clock has reached its end.

local LOCK = '>i8i8Bc0' -- generation; end; owner, of whom nothing is left after a release
local TRY = '>i8Bc0Bc0' -- how long; owner; lock
local HOLD = '>i8i8Bc0Bc0' -- how long; generation, or -1 for any; owner; lock

-- The last hold, and whether it is not over.
local function last_hold(tx, name)
  local packed = rows.get(tx, 'locks', name)
  if not packed then return { generation = 0, ends_at = 0, owner = '' }, false end
  local hold = {}
  hold.generation, hold.ends_at, hold.owner = unpack_bytes(LOCK, packed)
  return hold, hold.owner ~= '' and hold.ends_at > tx.now
end

local function put_hold(tx, name, hold)
  local packed = pack(LOCK, hold.generation, hold.ends_at, #hold.owner, hold.owner)
  rows.put(tx, 'locks', name, packed)
end

-- A hold as it is answered; false is none.
local function hold_answer(tx, hold)
  return hold and pack(
    '>i8i8i8Bc0', hold.generation, hold.ends_at, hold.ends_at - tx.now, #hold.owner, hold.owner)
end

local function try_lock(keys, args)
  local tx = begin(keys)
  local ttl, owner, name = unpack_bytes(TRY, args[1])
  local hold, is_held = last_hold(tx, name)
  if is_held then
    hold = hold.owner == owner and hold
  else
    hold.generation, hold.ends_at, hold.owner = hold.generation + 1, instant(tx.now + ttl), owner
    put_hold(tx, name, hold)
  end
  finish(tx)
  return hold_answer(tx, hold)
end

-- The hold that is meant, if it is not over.
local function find_hold(tx, generation, owner, name)
  local hold, is_held = last_hold(tx, name)
  local is_meant = is_held and hold.owner == owner
  return is_meant and (generation == -1 or generation == hold.generation) and hold
end

local function renew_lock(keys, args)
  local tx = begin(keys)
  local ttl, generation, owner, name = unpack_bytes(HOLD, args[1])
  local hold = find_hold(tx, generation, owner, name)
  if hold then
    hold.ends_at = instant(tx.now + ttl)
    put_hold(tx, name, hold)
  end
  finish(tx)
  return hold_answer(tx, hold)
end

local function release_lock(keys, args)
  local tx = begin(keys)
  local _, generation, owner, name = unpack_bytes(HOLD, args[1])
  local hold = find_hold(tx, generation, owner, name)
  if hold then
    hold.owner = ''
    put_hold(tx, name, hold)
  end
  finish(tx)
  return hold and 1 or 0
end

-- The clock is stored with the answer: what somebody saw end stays over, also if the host's clock is
-- set back then.
local function get_lock(keys, args)
  local tx = begin(keys)
  local hold, is_held = last_hold(tx, args[1])
  finish(tx)
  return hold_answer(tx, is_held and hold)
end

-- A full server takes these: what makes room again is done under a lock.
register('try_lock', try_lock, DRAINS)
register('renew_lock', renew_lock, DRAINS)
register('release_lock', release_lock, DRAINS)
register('get_lock', get_lock, DRAINS)
