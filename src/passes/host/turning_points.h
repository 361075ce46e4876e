// Where a rule about positions may change. Probing sees a rule at some steps; what it is at all others follows where
// the graph only counts, compares, selects and adds positions, lengths and known numbers: such a rule is the same
// between the numbers that it compares with, and is looked at beside each of them.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "passes/context/binding.h"
#include "passes/host/probe.h"

namespace situ {

struct TurningPoints {
  bool plain = true;                // nothing but counting, comparing, selecting and adding
  bool anywhere = false;            // a table that changes from entry to entry is read: only all of its entries tell
  std::vector<int64_t> at;          // ascending; positions and lengths from 2 on, sums and differences of two included
  std::vector<ValueId> conditions;  // bools of a step, of a token or of a key
};

// Axes of tokens and of keys.
int64_t token_axes(const Shape& shape);

// How the numbers that are looked at are judged: by what they are, or by being equal to others that are computed alike.
// Then whatever is computed element by element is plain: equal numbers stay equal.
enum class Judged { kByValue, kCompared };

// Of what stands behind the host values `roots`.
TurningPoints turning_points(const Graph& graph, const Prober& prober, const std::vector<ValueId>& roots,
                             Judged judged = Judged::kByValue);

// The steps (tokens, past) that tell rules of positions at all others: both sides of every number that a rule compares
// positions or lengths with, clamps them at, divides them by or looks them up to; short steps; and the last one that
// the context has. A step of more than `most_elements` tokens * keys is looked at by its last query, alone.
struct TellingSteps {
  bool told = false;  // false: what holds at these steps is not known to hold at others
  std::vector<std::pair<int64_t, int64_t>> steps;
  TurningPoints points = {};  // none of a context of which every step is looked at
};
constexpr int64_t kMostStepElements = 1 << 18;
constexpr size_t kMostTellingPoints = 128;  // rules with more are not told
TellingSteps telling_steps(const Graph& graph, const Prober& prober, const std::vector<ValueId>& rules, Phase phase,
                           int64_t context, Judged judged = Judged::kByValue,
                           int64_t most_elements = kMostStepElements);

// A value that the host knows has the same entry for a token (and a key) however many tokens the step has and however
// many precede it: told from steps of one token, of many, and of as many as its turning points say. A factor made of
// the length of the step, or a table chosen by it, does not. `first`: no token precedes a step.
bool entries_by_position(const Graph& graph, Prober& prober, ValueId v, int64_t context, bool first = false);

// Whether `part`, entries of a host value in one step, is what `whole` has for the tokens from `past` on and the keys
// up to them; `shape`: of the value.
bool part_agrees(const Shape& shape, const Tensor& part, const Tensor& whole, int64_t past);

}  // namespace situ
