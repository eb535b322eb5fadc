-- Configurations of queues, secrets that servers share, the clock, and the check that writes go through.

local function put_queue(keys, args)
  local tx = begin(keys)
  call('HSET', tx.keys.queues, args[1], pack('>i8', tx.now) .. args[2])
  finish(tx)
  return tx.now
end

local function queue_records(keys)
  local tx = begin(keys)
  return call('HGETALL', tx.keys.queues)
end

-- -1 for a queue that holds tasks, else whether there was a configuration.
local function delete_queue(keys, args)
  local tx = begin(keys)
  if not is_empty(tx, args[1]) then return -1 end
  return call('HDEL', tx.keys.queues, args[1])
end

local function shared_secret(keys, args)
  local tx = begin(keys)
  call('HSETNX', tx.keys.secrets, args[1], args[2])
  return call('HGET', tx.keys.secrets, args[1])
end

local function touch(keys)
  finish(begin(keys))
  return 0
end

-- The clock, which goes on from what was told.
local function now(keys)
  local tx = begin(keys)
  finish(tx)
  return tx.now
end

register('now', now, DRAINS)
register('put_queue', put_queue, NEEDS_SPACE)
register('queue_records', queue_records, READS)
register('delete_queue', delete_queue, DRAINS)
register('shared_secret', shared_secret, NEEDS_SPACE)
register('touch', touch, NEEDS_SPACE)
