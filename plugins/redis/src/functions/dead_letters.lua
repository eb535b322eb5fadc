-- Dead letters, newest first: pages of them, and steps that redrive or purge them. A step remembers
-- how far down the order of deaths it came, so what dies while it runs is above it and not of its
-- selection.

local DLQ = '>i8I4I8BBi8i8BBI4c0I4c0Bc0'
local FILTER_TYPE, FILTER_HANDLER, FILTER_FROM, FILTER_TO = 1, 2, 4, 8
local SELECTION_IDS = 0

-- Whether a filter lets a dead letter through; nil if nothing further down can match either, since
-- dead letters come by their death.
local function lets_through(filter, r)
  warm(r)
  if has(filter.flags, FILTER_FROM) and r.finished_at < filter.from then return nil end
  if has(filter.flags, FILTER_TO) and r.finished_at >= filter.to then return false end
  if has(filter.flags, FILTER_TYPE) then
    if not has(r.flags, FINAL_ERROR) or r.error_type ~= filter.error_type then return false end
  end
  return not has(filter.flags, FILTER_HANDLER) or r.handler == filter.handler
end

local function read_dlq(packed)
  local p, f = {}, {}
  p.before, p.limit, p.bytes_max, p.part, f.flags, f.from, f.to, p.selection, p.is_dry,
    f.error_type, f.handler, p.queue = unpack_bytes(DLQ, packed)
  p.filter = f
  return p
end

local function dlq_list(keys, args)
  local tx = begin(keys)
  local p = read_dlq(args[1])
  return page(tx, p.queue, FINISHED[DEAD], death_of, p, function(r)
    return lets_through(p.filter, r)
  end)
end

-- The dead letters of one step, as far as `may_take` goes, and the number to go on below.
local function select_dead(tx, p, ids, may_take)
  local selected = {}
  if p.selection ~= SELECTION_IDS then
    local is_over = false
    local rest = walk(tx, p.queue, FINISHED[DEAD], p.before, death_of, function(r)
      if #selected >= p.limit then return false end
      local passes = lets_through(p.filter, r)
      is_over = passes == nil
      if passes and not may_take(tx, r) then return false end
      if passes then selected[#selected + 1] = r end
      return not is_over
    end)
    return selected, is_over and -1 or rest
  end
  fetch(tx, ids)
  local seen = {}
  for _, id in ipairs(ids) do
    local r = find(tx, id)
    local is_dead = r and r.queue == p.queue and r.status == DEAD and death_of(r) < p.before
    if is_dead and not seen[id] then
      seen[id] = true
      selected[#selected + 1] = r
    end
  end
  table.sort(selected, function(a, b) return a.finished > b.finished end)
  local taken = 0
  while taken < math.min(#selected, p.limit) and may_take(tx, selected[taken + 1]) do
    taken = taken + 1
  end
  if taken == #selected then return selected, -1 end
  for at = #selected, taken + 1, -1 do selected[at] = nil end
  return selected, selected[taken].finished
end

local function any_number() return true end

local function revive(tx, r, due)
  r.ending, r.attempt_count, r.redrive_count = ENDING_NONE, 0, plus_one(r.redrive_count)
  r.finished, r.finished_at = 0, 0
  wait_until(tx, r, due)
end

local function ids_from(args, first)
  local ids = {}
  for at = first, #args do ids[#ids + 1] = args[at] end
  return ids
end

local function redrive(keys, args)
  local tx = begin(keys)
  local p = read_dlq(args[1])
  local delay, spacing = unpack_bytes('>dd', args[2])
  local selected, rest = select_dead(tx, p, ids_from(args, 3), any_number)
  if p.is_dry == 0 then
    for at, r in ipairs(selected) do
      change(tx, r, revive, instant(tx.now + math.ceil(delay + (at - 1) * spacing)))
    end
    finish(tx)
  end
  return { #selected, rest }
end

local function purge(keys, args)
  local tx = begin(keys)
  local p = read_dlq(args[1])
  local selected, rest = select_dead(tx, p, ids_from(args, 2), may_remove)
  if p.is_dry == 0 then
    for _, r in ipairs(selected) do remove(tx, r) end
    finish(tx)
  end
  return { #selected, rest }
end

register('dlq_list', dlq_list, READS)
register('redrive', redrive, DRAINS)
register('purge', purge, DRAINS)
