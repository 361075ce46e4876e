#include "passes/states/cache_update.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "passes/context/node_key.h"
#include "passes/context/pass_context.h"
#include "passes/host/turning_points.h"

namespace situ {
namespace {

constexpr size_t kMostUpdateNodes = 64;    // of an update
constexpr int64_t kDigit = 64;             // numbers that every type of a cache holds
constexpr float kUnwritten = 100;          // none of them
constexpr int64_t kExactFloats = 1 << 24;  // integers that a float tells apart

bool float_of_16_bits_or_more(DType t) { return dtype_is_float(t) && dtype_bytes(t) >= 2; }

int64_t product(const std::vector<int64_t>& dims, size_t begin, size_t end) {
  int64_t p = 1;
  for (size_t i = begin; i < end; ++i) p *= dims[i];
  return p;
}

// Whether every number of a state of one type is one of the other.
bool holds(DType other, DType state) {
  return other == state || other == DType::kF64 || (other == DType::kF32 && state != DType::kF64);
}

bool only_moves(const Graph& graph, const Node& n) {
  if (!n.domain.empty() || n.in.empty() || n.out.size() != 1) return false;
  if (n.op == "Cast")
    return float_of_16_bits_or_more(graph.values[n.in[0]].info.type) &&
           float_of_16_bits_or_more(graph.values[n.out[0]].info.type);
  return n.op == "Identity" || n.op == "Transpose" || n.op == "Reshape" || n.op == "Unsqueeze" || n.op == "Squeeze";
}

}  // namespace

std::optional<int> moved_axis(const Graph& graph, const Node& n, int axis) {
  if (!only_moves(graph, n)) return std::nullopt;
  const ValueInfo &x = graph.values[n.in[0]].info, &y = graph.values[n.out[0]].info;
  if (n.op == "Identity" || n.op == "Cast") return axis;
  if (n.op == "Transpose") {
    const std::vector<int64_t> perm = n.permutation(x.shape.size());
    for (size_t i = 0; i < perm.size(); ++i)
      if (perm[i] == axis) return static_cast<int>(i);
    return std::nullopt;
  }
  Dim before = 1;
  for (int i = 0; i < axis; ++i) before = before * x.shape[static_cast<size_t>(i)];
  Dim so_far = 1;
  for (size_t i = 0; i < y.shape.size(); ++i) {
    if (so_far == before && y.shape[i] == x.shape[static_cast<size_t>(axis)]) return static_cast<int>(i);
    so_far = so_far * y.shape[i];
  }
  return std::nullopt;
}

CacheUpdates::CacheUpdates(PassContext& context)
    : context_(context),
      graph_(context.graph),
      prober_(graph_, context.binding, context.evaluator),
      classes_(context.graph) {}

std::optional<CacheUpdate> CacheUpdates::find(ValueId past, ValueId present) {
  CacheUpdate u;
  u.past = past;
  u.present = present;
  const Shape& shape = graph_.values[past].info.shape;
  if (!shape_is_const(shape) || shape_count(shape).value() == 0 ||
      graph_.values[past].info.type != graph_.values[present].info.type)
    return std::nullopt;
  u.after = present;
  for (size_t hops = 0; hops < kMostUpdateNodes; ++hops) {
    const Node* n = graph_.producer(u.after);
    if (!n) return std::nullopt;
    u.node = graph_.values[u.after].producer;
    if (!only_moves(graph_, *n)) break;
    u.after = n->in[0];
    if (!holds(graph_.values[u.after].info.type, graph_.values[past].info.type)) return std::nullopt;
  }
  const ValueInfo& after = graph_.values[u.after].info;
  if (graph_.nodes[static_cast<size_t>(u.node)].out.size() != 1 || !shape_is_const(after.shape) || !collect(u) ||
      graph_.values[u.before].info.type != after.type || !(graph_.values[u.before].info.shape == after.shape))
    return std::nullopt;
  const std::string key = key_of(u);
  auto it = known_.find(key);
  if (it == known_.end()) it = known_.emplace(key, verify(u) ? std::optional(u) : std::nullopt).first;
  if (!it->second) return std::nullopt;
  u.axis = it->second->axis;
  u.order = it->second->order;
  u.places = it->second->places;
  u.circle = it->second->circle;
  u.rolls = it->second->rolls;
  if (!follow_past(u)) return std::nullopt;
  return u;
}

// -- which values the update is made of

// The input that a value is a moved one of; else the value itself.
ValueId CacheUpdates::moved_from(ValueId v) const {
  for (size_t hops = 0; hops < kMostUpdateNodes; ++hops) {
    const Node* n = graph_.producer(v);
    if (!n || !only_moves(graph_, *n)) break;
    v = n->in[0];
  }
  return v;
}

// As many numbers as one place has for each token.
bool CacheUpdates::holds_rows(const CacheUpdate& u, ValueId v) const {
  const Shape &shape = graph_.values[v].info.shape, &past = graph_.values[u.past].info.shape;
  const bool one = context_.phase == Phase::kDecode;
  const int64_t tokens = std::count_if(shape.begin(), shape.end(), [](const Dim& d) { return d.depends_on(kSymS); });
  if (tokens != (one ? 0 : 1)) return false;
  const Dim row = shape_count(shape).substitute(kSymS, Dim(1));
  if (!row.is_const() || row.value() == 0) return false;
  return std::any_of(past.begin(), past.end(),
                     [&](const Dim& d) { return d.value() > 1 && Dim(row.value() * d.value()) == shape_count(past); });
}

bool CacheUpdates::collect(CacheUpdate& u) {
  std::vector<ValueId> open = graph_.nodes[static_cast<size_t>(u.node)].in;
  u.nodes = {u.node};
  std::set<ValueId> seen;
  while (!open.empty()) {
    const ValueId v = open.back();
    open.pop_back();
    if (v == kNoValue || !seen.insert(v).second) continue;
    if (prober_.known(v)) {
      if (prober_.changes(v)) u.positions.push_back(v);
      continue;
    }
    const ValueId from = moved_from(v);
    const auto role = context_.binding.inputs.find(from);
    const bool state = role != context_.binding.inputs.end() && role->second == InputRole::kState;
    if (state || holds_rows(u, v)) {
      if (state && from != u.past) return false;
      ValueId& leaf = state ? u.before : u.rows;
      if (leaf != kNoValue && leaf != v) return false;
      leaf = v;
      continue;
    }
    const Node* n = graph_.producer(v);
    if (!n || !n->def || n->def->placement == Placement::kControl || u.nodes.size() >= kMostUpdateNodes) return false;
    u.nodes.insert(graph_.values[v].producer);
    open.insert(open.end(), n->in.begin(), n->in.end());
  }
  return u.before != kNoValue && u.rows != kNoValue && (!u.positions.empty() || may_roll(u));
}

// Of keys or values, joined with new rows: a state of three dims is that of a convolution (append_windows).
bool CacheUpdates::may_roll(const CacheUpdate& u) const {
  return graph_.values[u.past].info.shape.size() == 4 && std::any_of(u.nodes.begin(), u.nodes.end(), [&](int i) {
           return graph_.nodes[static_cast<size_t>(i)].is("Concat");
         });
}

// What the update computes, of which numbers, in text.
std::string CacheUpdates::key_of(const CacheUpdate& u) const {
  std::string key = std::string(dtype_name(graph_.values[u.before].info.type)) +
                    shape_str(graph_.values[u.before].info.shape) + shape_str(graph_.values[u.rows].info.shape);
  std::map<ValueId, std::string> names{{u.before, "before"}, {u.rows, "rows"}};
  for (const int i : u.nodes) {
    const Node& n = graph_.nodes[static_cast<size_t>(i)];
    key += "\n" + node_key(n, [&](ValueId v) {
             const auto it = names.find(v);
             return it != names.end() ? it->second : std::to_string(classes_.of(v));
           });
    for (const ValueId v : n.out)
      if (v != kNoValue) names.emplace(v, "<" + std::to_string(names.size()));
  }
  return key;
}

// The axis of the past that becomes that of the places, and where the others go.
bool CacheUpdates::follow_past(CacheUpdate& u) const {
  std::vector<const Node*> chain;
  for (ValueId v = u.before; v != u.past; v = chain.back()->in[0]) {
    if (!holds(graph_.values[v].info.type, graph_.values[u.past].info.type)) return false;
    chain.push_back(graph_.producer(v));
  }
  const Shape& past = graph_.values[u.past].info.shape;
  u.moved.assign(past.size(), -1);
  bool found = false;
  for (size_t i = 0; i < past.size(); ++i) {
    std::optional<int> axis = static_cast<int>(i);
    for (size_t k = chain.size(); k-- > 0 && axis;) axis = moved_axis(graph_, *chain[k], *axis);
    if (axis && past[i] != Dim(1)) u.moved[i] = *axis;
    if (found || !axis || *axis != u.axis || past[i] != Dim(u.places)) continue;
    u.past_axis = static_cast<int>(i);
    found = true;
  }
  return found;
}

// -- what it does

// after = ScatterND(before, positions [S, 1], rows): the rows go where the positions say, whole.
bool CacheUpdates::indexes_rows(const CacheUpdate& u) const {
  const Node& n = graph_.nodes[static_cast<size_t>(u.node)];
  if (!n.is("ScatterND") || n.attr_string("reduction", "none") != "none" || n.in[0] != u.before || n.in[2] != u.rows)
    return false;
  const Shape &index = graph_.values[n.in[1]].info.shape, &rows = graph_.values[u.rows].info.shape,
              &after = graph_.values[u.after].info.shape;
  return prober_.known(n.in[1]) && index.size() == 2 && index[1] == Dim(1) && rows.size() == after.size() &&
         rows[0] == index[0] && std::equal(rows.begin() + 1, rows.end(), after.begin() + 1);
}

std::optional<Tensor> CacheUpdates::in_type_of(ValueId like, const Tensor& x) {
  Result<Tensor> cast = context_.evaluator.cast(x, graph_.values[like].info.type);
  return cast.is_ok() ? std::optional(std::move(*cast)) : std::nullopt;
}
std::optional<Tensor> CacheUpdates::numbers(ValueId like, const std::vector<int64_t>& dims, int64_t divisor,
                                            int64_t modulus) {
  const Tensor t = Tensor::allocate(DType::kF32, dims);
  for (int64_t i = 0; i < t.count(); ++i) t.view().as<float>()[i] = static_cast<float>(i / divisor % modulus);
  return in_type_of(like, t);
}
std::optional<Tensor> CacheUpdates::filled(ValueId like, const std::vector<int64_t>& dims, float number) {
  const Tensor t = Tensor::allocate(DType::kF32, dims);
  std::fill_n(t.view().as<float>(), t.count(), number);
  return in_type_of(like, t);
}

// For each element of `after` the element of `rows` that it is, by its number; -1: it is what it was before.
std::optional<std::vector<int64_t>> CacheUpdates::written(const CacheUpdate& u, int64_t tokens, int64_t past) {
  const std::vector<int64_t> dims = prober_.dims(u.rows, tokens, past), all = prober_.dims(u.before, tokens, past);
  const int64_t count = product(dims, 0, dims.size()), places = product(all, 0, all.size());
  if (count < 1 || places * 4 > Evaluator::kMaxProbeBytes) return std::nullopt;
  const bool exact = graph_.values[u.rows].info.type == DType::kF32 && count < kExactFloats;
  std::vector<int64_t> index(static_cast<size_t>(places), 0);
  for (int64_t digit = 1; digit == 1 || (!exact && digit < count); digit *= kDigit) {
    const float unwritten = exact ? -1.0f : kUnwritten;
    const auto rows = numbers(u.rows, dims, digit, exact ? kExactFloats : kDigit);
    const auto before = filled(u.before, all, unwritten);
    if (!rows || !before) return std::nullopt;
    const Result<Tensor> after = prober_.evaluate(u.after, {{u.rows, *rows}, {u.before, *before}}, tokens, past);
    if (!after.is_ok() || after->count() != places) return std::nullopt;
    const std::vector<double> found = after->to_f64();
    for (size_t i = 0; i < index.size(); ++i) {
      const auto number = static_cast<int64_t>(found[i]);
      const bool kept = found[i] == unwritten;
      if (digit > 1 && kept != (index[i] < 0)) return std::nullopt;
      if (!kept && (static_cast<double>(number) != found[i] || number < 0 || (!exact && number >= kDigit)))
        return std::nullopt;
      index[i] = kept ? -1 : index[i] + number * digit;
    }
  }
  return index;
}

// Finds the axis of the places, and which axes of the rows the others are, from one step.
bool CacheUpdates::lay_out(CacheUpdate& u) {
  const int64_t tokens = context_.phase == Phase::kDecode ? 1 : 2, past = context_.phase == Phase::kFirst ? 0 : 1;
  const std::vector<int64_t> all = prober_.dims(u.before, tokens, past), rows = prober_.dims(u.rows, tokens, past);
  const auto index = written(u, tokens, past);
  if (!index) return false;
  // The axis on which places of these tokens are written, and no others.
  int axis = -1;
  for (size_t a = 0; a < all.size(); ++a) {
    const int64_t inner = product(all, a + 1, all.size());
    const int64_t begin = u.rolls ? all[a] - tokens : past;
    bool fits = all[a] >= tokens + past && all[a] > 1;
    for (size_t i = 0; i < index->size() && fits; ++i) {
      const int64_t place = static_cast<int64_t>(i) / inner % all[a];
      fits = ((*index)[i] >= 0) == (place >= begin && place < begin + tokens);
    }
    if (!fits) continue;
    if (axis >= 0) return false;
    axis = static_cast<int>(a);
  }
  if (axis < 0) return false;
  u.axis = axis;
  u.places = all[static_cast<size_t>(axis)];
  if (!keeps_numbers(u, tokens, past, *index)) return false;
  // A step along an axis of the cache is a step along one of the rows.
  std::vector<int64_t> order;
  std::vector<bool> taken(rows.size(), false);
  const int64_t first = (u.rolls ? u.places - tokens : past) * product(all, static_cast<size_t>(axis) + 1, all.size());
  for (size_t a = 0; a < all.size(); ++a) {
    const int64_t extent = static_cast<int>(a) == axis ? tokens : all[a];
    if (extent == 1) continue;
    const int64_t step =
        (*index)[static_cast<size_t>(first + product(all, a + 1, all.size()))] - (*index)[static_cast<size_t>(first)];
    size_t r = 0;
    while (r < rows.size() && (taken[r] || rows[r] != extent || product(rows, r + 1, rows.size()) != step)) ++r;
    if (r == rows.size()) return false;
    taken[r] = true;
    order.push_back(static_cast<int64_t>(r));
  }
  for (size_t r = 0; r < rows.size(); ++r) {
    if (taken[r]) continue;
    if (rows[r] != 1) return false;
    order.insert(order.begin(), static_cast<int64_t>(r));
  }
  u.order = order;
  return true;
}

// Whether a step writes its tokens at P .. P + S - 1, modulo the places, and nowhere else.
bool CacheUpdates::writes(const CacheUpdate& u, int64_t tokens, int64_t past) {
  if (indexes_rows(u)) {
    const Result<Tensor> at = prober_.host_value(graph_.nodes[static_cast<size_t>(u.node)].in[1], tokens, past);
    if (!at.is_ok() || dtype_is_float(at->type()) || at->count() != tokens) return false;
    const std::vector<int64_t> place = at->to_i64();
    for (int64_t i = 0; i < tokens; ++i) {
      const int64_t found = place[static_cast<size_t>(i)];
      if ((found < 0 ? found + u.places : found) != (past + i) % u.places) return false;
    }
    return true;
  }
  const auto index = written(u, tokens, past);
  if (!index) return false;
  const std::vector<int64_t> all = prober_.dims(u.before, tokens, past), rows = prober_.dims(u.rows, tokens, past);
  std::vector<int64_t> steps(all.size(), 0);  // along each axis of the cache, in elements of the rows
  size_t next = u.order.size();
  for (size_t a = all.size(); a-- > 0;) {
    if ((static_cast<int>(a) == u.axis ? tokens : all[a]) == 1) continue;
    // Axes of one element have no step, and stand in front.
    while (next > 0 && rows[static_cast<size_t>(u.order[next - 1])] == 1) --next;
    if (next == 0) return false;
    const auto r = static_cast<size_t>(u.order[--next]);
    steps[a] = product(rows, r + 1, rows.size());
  }
  const int64_t begin = u.rolls ? u.places - tokens : past % u.places;
  for (size_t i = 0; i < index->size(); ++i) {
    int64_t rest = static_cast<int64_t>(i), expected = 0, place = 0;
    for (size_t a = all.size(); a-- > 0; rest /= all[a]) {
      const int64_t at = rest % all[a];
      if (static_cast<int>(a) == u.axis)
        place = (at - begin + u.places) % u.places;
      else
        expected += at * steps[a];
    }
    expected = place < tokens ? expected + place * steps[static_cast<size_t>(u.axis)] : -1;
    if ((*index)[i] != expected) return false;
  }
  return true;
}

// Whether the numbers themselves come through to where `index` says, which is all that written() tells: those of any
// size, to the last digit.
bool CacheUpdates::keeps_numbers(const CacheUpdate& u, int64_t tokens, int64_t past,
                                 const std::vector<int64_t>& index) {
  const DType from = graph_.values[u.rows].info.type, to = graph_.values[u.after].info.type;
  if (!dtype_is_float(from) || !dtype_is_float(to)) return false;
  const int largest = dtype_bytes(from) < 4 || dtype_bytes(to) < 4 ? 7 : 60;  // power of two
  uint32_t seed = 1;
  const auto any = [&](ValueId like) {
    const Tensor t = Tensor::allocate(DType::kF32, prober_.dims(like, tokens, past));
    for (int64_t i = 0; i < t.count(); ++i) {
      seed = seed * 1664525 + 1013904223;
      const int exponent = static_cast<int>(seed >> 8 & 0xffff) % (2 * largest) - largest;
      const float part = 1 + static_cast<float>(seed >> 9) * 0x1p-23f;
      t.view().as<float>()[i] = std::ldexp(seed >> 31 != 0 ? -part : part, exponent);
    }
    return in_type_of(like, t);
  };
  const auto rows = any(u.rows), before = any(u.before);
  if (!rows || !before) return false;
  const Result<Tensor> after = prober_.evaluate(u.after, {{u.rows, *rows}, {u.before, *before}}, tokens, past);
  if (!after.is_ok() || static_cast<size_t>(after->count()) != index.size()) return false;
  const auto given = in_type_of(u.after, *rows);
  if (!given) return false;
  const std::vector<float> found = floats(*after), wrote = floats(*given), kept = floats(*before);
  const std::vector<int64_t> all = prober_.dims(u.before, tokens, past);
  const int64_t moved = u.rolls ? tokens * product(all, static_cast<size_t>(u.axis) + 1, all.size()) : 0;
  for (size_t i = 0; i < found.size(); ++i) {
    const float wanted = index[i] < 0 ? kept[i + static_cast<size_t>(moved)] : wrote[static_cast<size_t>(index[i])];
    if (found[i] != wanted) return false;
  }
  return true;
}

// Whether places go up by one from each token to the next, wherever it stands: each number that the host knows of them
// stays, or is always one more, or all move on by one along the places.
bool CacheUpdates::goes_on(const CacheUpdate& u) {
  constexpr int64_t kMostPlaces = 4096;  // all of which are looked at
  const int64_t stride = std::max<int64_t>(1, u.places / kMostPlaces);
  if (context_.phase == Phase::kFirst) return true;  // which has no past
  std::vector<std::vector<double>> before(u.positions.size()), steps(u.positions.size());
  std::set<int64_t> telling;  // where not all are looked at
  if (stride > 1) {
    const TellingSteps steps_told = telling_steps(graph_, prober_, u.positions, Phase::kDecode, u.places);
    if (!steps_told.told) return false;
    for (const auto& [tokens, past] : steps_told.steps) telling.insert({past, past + 1});
  }
  int64_t last = -1;
  for (int64_t past = 0; past < u.places; ++past) {
    // The first two of each stride are compared.
    if (stride > 1 && past % stride > 1 && telling.count(past) == 0) continue;
    const bool next = past == std::exchange(last, past) + 1;
    for (size_t k = 0; k < u.positions.size(); ++k) {
      const Result<Tensor> value = prober_.host_value(u.positions[k], 1, past);
      if (!value.is_ok()) return false;
      const std::vector<double> now = value->to_f64();
      const std::vector<double> was = std::exchange(before[k], now);
      if (was.empty() || !next) continue;
      if (was.size() != now.size()) return false;
      const auto each = [&](auto same) {
        for (size_t i = 0; i < now.size(); ++i)
          if (!same(i)) return false;
        return true;
      };
      if (steps[k].empty())
        for (size_t i = 0; i < now.size(); ++i) steps[k].push_back(now[i] - was[i]);
      if (each([&](size_t i) { return now[i] - was[i] == steps[k][i] && (steps[k][i] == 0 || steps[k][i] == 1); }))
        continue;
      bool moved = false;
      const std::vector<int64_t> dims = value->dims();
      for (size_t a = 0; a < dims.size() && !moved; ++a) {
        if (dims[a] != u.places) continue;
        const auto inner = static_cast<size_t>(product(dims, a + 1, dims.size()));
        moved = each([&](size_t i) {
          const bool front = i / inner % static_cast<size_t>(u.places) == 0;
          return front ? past < 2 || now[i] == was[i] : now[i] == was[i - inner];
        });
      }
      if (!moved) return false;
    }
  }
  return true;
}

bool CacheUpdates::verify(CacheUpdate& u) {
  if (indexes_rows(u)) {
    u.axis = 0;
    u.places = graph_.values[u.after].info.shape[0].value();
    for (size_t i = 0; i < graph_.values[u.rows].info.shape.size(); ++i) u.order.push_back(static_cast<int64_t>(i));
  } else if (u.positions.empty() || !lay_out(u)) {
    u.rolls = may_roll(u);
    if (!u.rolls || !lay_out(u)) return false;
  }
  if (u.places < 2 || !goes_on(u)) return false;
  const bool one = context_.phase == Phase::kDecode;
  const auto step = [&](int64_t tokens, int64_t past) { return (one && tokens > 1) || writes(u, tokens, past); };
  const int64_t n = u.places;
  for (const auto& [tokens, past] : {std::pair<int64_t, int64_t>{1, 0},
                                     {2, 0},
                                     {std::min<int64_t>(3, n), 0},
                                     {1, 1},
                                     {1, n / 3},
                                     {2, n / 2},
                                     {1, n - 1},
                                     {2, n - 2}})
    if (tokens + past <= n && !step(tokens, past)) return false;
  u.circle = u.rolls || (step(1, n) && step(1, n + 1) && step(1, 2 * n + n / 2));
  return true;
}

}  // namespace situ
