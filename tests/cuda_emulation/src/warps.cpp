// Shuffles, votes and reductions of a warp. The last lane of a mask to arrive works out every
// lane's result. Shuffles exchange values and order no memory accesses; only __syncwarp does that.

#include <algorithm>

#include "block.h"
#include "sanitizers.h"

namespace lipgrad_emulation {
namespace {

template <class F>
void each_lane(unsigned lanes, F f) {
  for (; lanes; lanes &= lanes - 1) f(__builtin_ctz(lanes));
}

}  // namespace

void Block::resolve(Warp& warp, const Group& group) {
  Thread* const lane = lanes(warp);
  // Lane i reads lane source(thread, i, first lane of its segment, last).
  const auto shuffle = [&](auto source) {
    for (unsigned rest = group.arrived; rest; rest &= rest - 1) {
      const int i = __builtin_ctz(rest);
      Thread& thread = lane[i];
      const int first = i & ~(thread.width - 1);
      const int from = source(thread, i, first, first + thread.width - 1);
      if (!(group.arrived >> (from & 31) & 1) || from >> 5 != 0)
        return abort("lane " + std::to_string(i) + " reads lane " + std::to_string(from) +
                     ", which does not take part, in " + place(thread));
      thread.result = lane[from].value;
    }
  };
  switch (group.op) {
    case Op::shfl:
      return shuffle([](const Thread& t, int, int first, int) {
        return first + (t.parameter & (t.width - 1));
      });
    case Op::shfl_up:
      return shuffle([](const Thread& t, int i, int first, int) {
        return i - t.parameter < first ? i : i - t.parameter;
      });
    case Op::shfl_down:
      return shuffle([](const Thread& t, int i, int, int last) {
        return i + t.parameter > last ? i : i + t.parameter;
      });
    case Op::shfl_xor:
      return shuffle([](const Thread& t, int i, int, int last) {
        return (i ^ t.parameter) > last ? i : i ^ t.parameter;
      });
    default:
      break;
  }
  std::uint64_t result = 0;
  const auto combine = [&](auto f) {
    bool first = true;
    each_lane(group.arrived, [&](int i) {
      result = first ? lane[i].value : f(result, lane[i].value);
      first = false;
    });
  };
  using U = std::uint64_t;
  using I = std::int64_t;
  switch (group.op) {
    case Op::ballot:
      each_lane(group.arrived, [&](int i) { result |= (lane[i].value & 1) << i; });
      break;
    case Op::any:
    case Op::reduce_or:
      combine([](U a, U b) { return a | b; });
      break;
    case Op::all:
    case Op::reduce_and:
      combine([](U a, U b) { return a & b; });
      break;
    case Op::reduce_xor:
      combine([](U a, U b) { return a ^ b; });
      break;
    case Op::reduce_add:
      combine([](U a, U b) { return a + b; });
      break;
    case Op::reduce_min:
      combine([](U a, U b) { return static_cast<I>(b) < static_cast<I>(a) ? b : a; });
      break;
    case Op::reduce_max:
      combine([](U a, U b) { return static_cast<I>(a) < static_cast<I>(b) ? b : a; });
      break;
    case Op::reduce_umin:
      combine([](U a, U b) { return b < a ? b : a; });
      break;
    case Op::reduce_umax:
      combine([](U a, U b) { return a < b ? b : a; });
      break;
    case Op::match_any:
      each_lane(group.arrived, [&](int i) {
        U same = 0;
        each_lane(group.arrived, [&](int k) { same |= U{lane[k].value == lane[i].value} << k; });
        lane[i].result = same;
      });
      return;
    default:
      return;
  }
  each_lane(group.arrived, [&](int i) { lane[i].result = result; });
}

// True when all lanes of the group's mask are there or gone: they have their results and go on.
bool Block::complete(Warp& warp, int number) {
  const Group group = warp.group[number];
  if (((group.arrived | warp.gone) & group.mask) != group.mask) return false;
  ++counters.collectives;
  warp.group[number] = warp.group[--warp.groups];
  resolve(warp, group);
  if (aborted_) return true;
  Thread* const lane = lanes(warp);
  each_lane(group.arrived, [&](int i) {
    if (lane[i].state == State::waiting) push(lane[i]);
  });
  return true;
}

void Block::complete_all(Warp& warp) {
  for (int i = 0; i < warp.groups && !aborted_;)
    if (!complete(warp, i)) ++i;
}

std::uint64_t warp_op(Op op, unsigned mask, std::uint64_t value, int parameter, int width,
                      const char* file, int line) {
  Block& b = block;
  Thread& me = *b.current_;
  Warp& warp = b.warps_[me.number / 32];
  const unsigned bit = 1u << (me.number % 32);
  me.op = op;
  me.mask = mask;
  me.value = value;
  me.parameter = parameter;
  me.width = width;
  me.file = file;
  me.line = line;
  if (!(mask & bit))
    b.die(me, "thread " + std::to_string(me.number) + " is not in the mask it passed");
  if (width <= 0 || width > 32 || (width & (width - 1)) != 0)
    b.die(me, "width is no power of two up to 32");
  int group = 0;
  while (group < warp.groups && warp.group[group].mask != mask) ++group;
  if (group == warp.groups) warp.group[warp.groups++] = {mask, 0, op};
  if (warp.group[group].op != op)
    b.die(me, std::string("lanes of one mask meet in different intrinsics: ") +
                  op_name(warp.group[group].op) + " and " + op_name(op));
  warp.group[group].arrived |= bit;
  char* const sync = b.sync_ + 16 + me.number / 32 * 8;
  const bool orders = op == Op::syncwarp && under_tsan();
  if (orders) __tsan_release(sync);
  if (b.complete(warp, group)) {
    if (b.aborted_) throw Aborted{};
  } else {
    b.wait(me);
  }
  if (orders) __tsan_acquire(sync);
  return me.result;
}

}  // namespace lipgrad_emulation
