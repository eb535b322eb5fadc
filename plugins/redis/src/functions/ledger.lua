-- The ledger: a row each mutation, `subject NUL operation NUL key`, in `mutations`. `observed` has them
-- by the time of their observation. A commit makes a row, pruning removes it, and nothing changes it.

local PRUNE = '>i8I4' -- age; limit

-- What is recorded of a mutation; false is nothing.
local function recorded(tx, scope) return rows.get(tx, 'mutations', scope) end

-- Records a mutation, which comes packed but for its time, and behind it what came of it: the answers
-- of its commit's other operations, one behind the other.
local function record(tx, scope, mutation, answers)
  rows.put(tx, 'mutations', scope, pack('>i8', tx.now) .. mutation .. answers)
  rows.rank(tx, 'observed', scope, tx.now)
end

parts_of_commits.recorded, parts_of_commits.record = recorded, record

local function mutation(keys, args)
  local tx = begin(keys)
  return recorded(tx, args[1])
end

-- How many mutations went.
local function prune(keys, args)
  local tx = begin(keys)
  local age, limit = unpack_bytes(PRUNE, args[1])
  -- As text, a number of Lua has no more than 14 digits by itself.
  local before = string.format('(%.0f', tx.now - age)
  local old = call('ZRANGEBYSCORE', tx.keys.observed, '-inf', before, 'LIMIT', 0, limit)
  if #old == 0 then return 0 end
  for _, scope in ipairs(old) do
    rows.put(tx, 'mutations', scope, false)
    rows.rank(tx, 'observed', scope, false)
  end
  finish(tx)
  return #old
end

register('mutation', mutation, READS)
register('prune', prune, DRAINS)
