// Shows, by what the graph computes on numbers, that a fixed window computes for its real tokens what it does without
// its fixed extents. Nodes that are alike are looked at once.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "passes/context/binding.h"
#include "passes/context/node_key.h"
#include "passes/host/mask.h"
#include "passes/host/probe.h"
#include "passes/host/turning_points.h"
#include "passes/host/value_classes.h"
#include "passes/window/fixed_window.h"

namespace situ {
namespace {

constexpr int kMaxConeNodes = 64;
constexpr int64_t kMostElements = 1 << 24;  // of masks that are looked at, for all lengths together
constexpr int64_t kFewLengths = 24;
constexpr float kScores = 8;  // random scores are below

// One step: n ones in the mask; the graph without fixed extents has the n - past last ones as its new tokens.
struct Step {
  int64_t ones = 0, tokens = 0, past = 0;
};

class Proof {
 public:
  Proof(const FixedWindow& window, const Graph& fixed, const Graph& lifted, Evaluator& evaluator)
      : window_(window),
        fixed_(fixed),
        lifted_(lifted),
        evaluator_(evaluator),
        binding_(roles(window)),
        in_fixed_(fixed, binding_, evaluator),
        in_lifted_(lifted, binding_, evaluator),
        classes_(lifted) {}

  Status run() {
    find_roots();
    const std::vector<Step> all = steps();
    if (all.empty())
      return Status::error("what its mask does with every number of ones of " + std::to_string(window_.length) +
                           " is not shown");
    for (const Step& step : all) {
      step_ = step;
      SITU_RETURN_IF_ERROR(known_values().with_context(with_ones()));
      for (const Node* n : attentions_) SITU_RETURN_IF_ERROR(attention(*n).with_context(with_ones()));
      for (const Node* n : parts_) SITU_RETURN_IF_ERROR(part(*n).with_context(with_ones()));
    }
    return Status::ok();
  }

 private:
  static Binding roles(const FixedWindow& w) {
    Binding b;
    b.inputs[w.ids] = InputRole::kTokenIds;
    b.inputs[w.mask] = InputRole::kWindowMask;
    for (const ValueId v : w.positions) b.inputs[v] = InputRole::kPositions;
    for (const FixedWindow::State& s : w.states) b.inputs[s.past] = InputRole::kState;
    return b;
  }
  std::string with_ones() const {
    return "with " + std::to_string(step_.ones) + " of " + std::to_string(window_.length) + " ones in its mask";
  }

  // All numbers of ones where they are few; else those that tell all others: beside W and T, and beside the numbers
  // that either graph compares with, counted in ones and in zeros. Empty: none do.
  std::vector<Step> steps() const {
    const int64_t most = kMostElements / std::max<int64_t>(1, window_.tokens * window_.length);
    std::vector<int64_t> ones;
    if (window_.length <= std::min<int64_t>(most, 128)) {
      for (int64_t n = 1; n <= window_.length; ++n) ones.push_back(n);
    } else {
      for (const int64_t n :
           {int64_t{1}, int64_t{2}, window_.tokens - 1, window_.tokens, window_.tokens + 1, window_.past() - 1,
            window_.past(), window_.past() + 1, window_.length - 1, window_.length})
        ones.push_back(n);
      const int64_t between = std::clamp<int64_t>(most, 4, kFewLengths);
      for (int64_t i = 1; i < between; ++i) ones.push_back(window_.length * i / between + i % 3);
      for (const auto& [graph, prober] : {std::pair{&fixed_, &in_fixed_}, {&lifted_, &in_lifted_}}) {
        const TurningPoints points = turning_points(*graph, *prober, rules(*prober), Judged::kCompared);
        if (!points.plain || points.at.size() > kMostTellingPoints) return {};
        for (const int64_t at : points.at)
          for (const int64_t number : {at, window_.length - at})
            for (int64_t n = number - 1; n <= number + 1; ++n) ones.push_back(n);
      }
    }
    std::sort(ones.begin(), ones.end());
    ones.erase(std::unique(ones.begin(), ones.end()), ones.end());
    std::vector<Step> all;
    for (const int64_t n : ones) {
      if (n < 1 || n > window_.length) continue;
      const int64_t tokens = std::min(n, window_.tokens);
      all.push_back({n, tokens, n - tokens});
    }
    return all;
  }

  // Host values that nodes on data read; both graphs have the same nodes and values.
  std::vector<ValueId> rules(const Prober& prober) const {
    std::set<ValueId> found;
    for (const Node& n : lifted_.nodes)
      for (const ValueId v : n.in)
        if (prober.changes(v) && std::any_of(n.out.begin(), n.out.end(), [&](ValueId y) { return data(y); }))
          found.insert(v);
    return {found.begin(), found.end()};
  }

  const Shape& shape(ValueId v) const { return lifted_.values[v].info.shape; }
  bool data(ValueId v) const { return v != kNoValue && !in_lifted_.known(v); }

  // What is looked at: known values that are numbers to a node on data, attention, parts of tokens or keys.
  void find_roots() {
    std::set<std::string> seen;
    std::set<int> roots;
    for (const Node& n : lifted_.nodes) {
      if (std::none_of(n.out.begin(), n.out.end(), [&](ValueId v) { return data(v); })) continue;
      const bool places = n.op.rfind("Gather", 0) == 0 || n.is("Rotary", "situ") ||
                          (n.def && n.def->placement == Placement::kElementwise);
      for (const ValueId v : n.in) {
        if (v == kNoValue || !in_lifted_.changes(v)) continue;
        const DType type = lifted_.values[v].info.type;
        const bool number = dtype_is_float(type) || type == DType::kBool || places;
        if (number && roots.insert(classes_.of(v)).second) roots_.emplace_back(v, &n);
      }
      const bool attends = n.is("Attention", "situ") || (n.is("Softmax") && symbolic(n.in[0]) && data(n.in[0]));
      if (attends && seen.insert(attention_key(n)).second) attentions_.push_back(&n);
      if ((n.is("Slice") || n.is("Split") || n.is("Gather")) && data(n.in[0]) && symbolic(n.in[0]) &&
          seen.insert(part_key(n)).second)
        parts_.push_back(&n);
    }
  }
  bool symbolic(ValueId v) const { return !shape_is_const(shape(v)); }
  bool of_keys(const Dim& d) const { return d.depends_on(kSymP); }

  // What is taken of a value, not of which.
  std::string part_key(const Node& n) const {
    std::string key = node_key(n, [&](ValueId v) { return v == n.in[0] ? "x" : std::to_string(classes_.of(v)); });
    key += shape_str(shape(n.in[0]));
    for (const ValueId v : n.out) key += v == kNoValue ? "-" : shape_str(shape(v));
    return key;
  }

  // Nodes from the scores to Softmax, with what they read that is known.
  std::string attention_key(const Node& n) const {
    if (!n.is("Softmax")) return n.op + std::to_string(n.has_input(3) ? classes_.of(n.in[3]) : -1);
    const ValueId scores = in_lifted_.scores(n, kMaxConeNodes);
    const auto cone = scores == kNoValue ? std::nullopt : in_lifted_.cone(n.in[0], scores, kMaxConeNodes);
    if (!cone) return n.label();
    return cone_key(lifted_, cone->nodes, scores, [&](ValueId v) { return std::to_string(classes_.of(v)); });
  }

  // -- inputs of a step

  static Tensor integers(DType type, const std::vector<int64_t>& dims, const std::function<int64_t(int64_t)>& at) {
    Tensor t = Tensor::allocate(type, dims);
    for (int64_t i = 0; i < t.count(); ++i) {
      const int64_t x = at(i);
      switch (type) {
        case DType::kI64:
          t.view().as<int64_t>()[i] = x;
          break;
        case DType::kI32:
          t.view().as<int32_t>()[i] = static_cast<int32_t>(x);
          break;
        case DType::kF32:
          t.view().as<float>()[i] = static_cast<float>(x);
          break;
        case DType::kF16:
          t.view().as<uint16_t>()[i] = x != 0 ? 0x3C00 : 0;
          break;
        default:
          t.view().as<uint8_t>()[i] = static_cast<uint8_t>(x);
      }
    }
    return t;
  }
  std::map<ValueId, Tensor> fixed_inputs() const {
    const int64_t hidden = window_.length - step_.ones, first = step_.ones - window_.tokens;
    std::map<ValueId, Tensor> all;
    all[window_.mask] = integers(fixed_.values[window_.mask].info.type, {1, window_.length},
                                 [&](int64_t i) { return i >= hidden ? 1 : 0; });
    for (const ValueId v : window_.positions)
      all[v] = integers(fixed_.values[v].info.type, shape_values(fixed_.values[v].info.shape),
                        [&](int64_t i) { return std::max<int64_t>(0, first + i % window_.tokens); });
    return all;
  }
  std::map<ValueId, Tensor> lifted_inputs() const {
    return {
        {window_.mask, integers(lifted_.values[window_.mask].info.type, {1, step_.ones}, [](int64_t) { return 1; })}};
  }

  // -- what is compared

  // Elements of `fixed` that are of real tokens and keys: for each axis of a value the last ones, as many as `dims`.
  Result<Tensor> real_part(const Tensor& fixed, const std::vector<int64_t>& dims, const std::string& name) const {
    const std::vector<int64_t> from = fixed.dims();
    if (from.size() != dims.size()) return Status::error("'" + name + "' has another rank");
    View part = fixed.view();
    for (size_t i = 0; i < dims.size(); ++i) {
      if (dims[i] > from[i]) return Status::error("'" + name + "' has fewer elements");
      part.data += (from[i] - dims[i]) * part.strides[i] * dtype_bytes(part.type);
      part.dims[i] = dims[i];
    }
    Tensor t = Tensor::allocate(fixed.type(), dims);
    evaluator_.move(t.view(), part);
    return t;
  }
  // Extents that are those of tokens, keys, past, or no symbol.
  Status aligned(ValueId v) const {
    const Dim tokens = Dim::symbol(kSymS), past = Dim::symbol(kSymP);
    for (const Dim& d : shape(v))
      if (!d.is_const() && d != tokens && d != past && d != past + tokens)
        return Status::error("'" + lifted_.values[v].name + "' " + shape_str(shape(v)) +
                             " has no row for each token or key");
    return Status::ok();
  }
  static bool masked(float f) { return !(f > kMasked); }
  static bool close(float a, float b, float tolerance) {
    return a == b || (std::isnan(a) && std::isnan(b)) || (masked(a) && masked(b)) ||
           std::fabs(a - b) <= tolerance * (1 + std::fabs(a));
  }
  float tolerance(DType type) const { return type == DType::kF16 || type == DType::kBF16 ? 2e-2f : 1e-4f; }

  Status known_values() {
    std::vector<ValueId> roots;
    for (const auto& [v, node] : roots_) roots.push_back(v);
    const Result<std::vector<Tensor>> fixed = in_fixed_.evaluate(roots, fixed_inputs(), window_.tokens, window_.past());
    if (!fixed.is_ok()) return fixed.status();
    const Result<std::vector<Tensor>> lifted = in_lifted_.evaluate(roots, lifted_inputs(), step_.tokens, step_.past);
    if (!lifted.is_ok()) return lifted.status();
    for (size_t i = 0; i < roots.size(); ++i) {
      const std::string name = lifted_.values[roots[i]].name;
      SITU_RETURN_IF_ERROR(aligned(roots[i]));
      const Result<Tensor> real = real_part((*fixed)[i], (*lifted)[i].dims(), name);
      if (!real.is_ok()) return real.status();
      const std::vector<double> a = real->to_f64(), b = (*lifted)[i].to_f64();
      for (size_t k = 0; k < a.size(); ++k)
        if (!close(static_cast<float>(a[k]), static_cast<float>(b[k]), tolerance(real->type())))
          return Status::error(roots_[i].second->label() + " reads '" + name + "', which is " + std::to_string(a[k]) +
                               " for a token, and " + std::to_string(b[k]) + " where nothing is hidden before it");
    }
    return Status::ok();
  }

  Status attention(const Node& n) {
    if (n.is("Softmax")) return softmax(n);
    if (step_.ones == window_.length) return Status::ok();
    const Status sees =
        Status::error(n.label() + " sees rows of the past that hold no token: nothing that it reads hides them");
    if (!n.has_input(3)) return sees;
    const auto bias = in_fixed_.evaluate(std::vector<ValueId>{n.in[3]}, fixed_inputs(), window_.tokens, window_.past());
    if (!bias.is_ok()) return bias.status();
    return hides((*bias)[0], n);
  }

  // Every key before the last `ones` in the rows of real tokens of x [.., W, T].
  Status hides(const Tensor& x, const Node& n) const {
    const std::vector<int64_t> dims = x.dims();
    const int64_t keys = window_.length, hidden = keys - step_.ones;
    if (dims.empty() || dims.back() != keys)
      return Status::error(n.label() + ": its mask has no column for each of the " + std::to_string(keys) + " keys");
    const int64_t rows = dims.size() > 1 ? dims[dims.size() - 2] : 1;
    if (rows != 1 && rows != window_.tokens) return Status::error(n.label() + ": its mask has no row for each token");
    const std::vector<float> all = floats(x);
    const bool kept = x.type() == DType::kBool;
    for (size_t i = 0; i < all.size(); ++i) {
      const int64_t key = static_cast<int64_t>(i) % keys, row = static_cast<int64_t>(i) / keys % rows;
      if (key >= hidden || (rows > 1 && row < rows - step_.tokens)) continue;
      if (kept ? all[i] != 0 : !masked(all[i]))
        return Status::error(n.label() + " sees key " + std::to_string(key) + " of " + std::to_string(keys) +
                             ", which holds no token");
    }
    return Status::ok();
  }

  // With random scores: hidden keys stay hidden, and the others are what they are without them, but for a number that
  // is added to all of a row.
  Status softmax(const Node& n) {
    const Shape& x = shape(n.in[0]);
    const int64_t rank = static_cast<int64_t>(x.size()), axis = n.attr_int("axis", n.opset < 13 ? 1 : -1),
                  last = axis < 0 ? axis + rank : axis;
    if (last != rank - 1 || !of_keys(x.back())) {
      for (int64_t i = last; i < rank; ++i)
        if (!x[static_cast<size_t>(i)].is_const())
          return Status::error(n.label() + " adds up over " + x[static_cast<size_t>(i)].str());
      return Status::ok();  // of each token alone
    }
    const ValueId scores = in_lifted_.scores(n, kMaxConeNodes);
    if (scores == kNoValue || !in_lifted_.cone(n.in[0], scores, kMaxConeNodes))
      return Status::error(n.label() + ": what hides keys from it cannot be told");
    SITU_RETURN_IF_ERROR(aligned(scores));
    SITU_RETURN_IF_ERROR(aligned(n.in[0]));
    const DType type = lifted_.values[scores].info.type;
    Result<Tensor> all = random_scores(shape_values(fixed_.values[scores].info.shape), type);
    if (!all.is_ok()) return all.status();
    const Result<Tensor> some = real_part(*all, in_lifted_.dims(scores, step_.tokens, step_.past), n.label());
    if (!some.is_ok()) return some.status();
    std::map<ValueId, Tensor> fixed_leaves = fixed_inputs(), lifted_leaves = lifted_inputs();
    fixed_leaves[scores] = *all;
    lifted_leaves[scores] = *some;
    const Result<Tensor> fixed = in_fixed_.evaluate(n.in[0], fixed_leaves, window_.tokens, window_.past());
    if (!fixed.is_ok()) return fixed.status();
    const Result<Tensor> lifted = in_lifted_.evaluate(n.in[0], lifted_leaves, step_.tokens, step_.past);
    if (!lifted.is_ok()) return lifted.status();
    SITU_RETURN_IF_ERROR(hides(*fixed, n));
    const Result<Tensor> real = real_part(*fixed, lifted->dims(), n.label());
    if (!real.is_ok()) return real.status();
    return same_rows(floats(*real), floats(*lifted), lifted->dims().back(), tolerance(lifted->type()), n);
  }
  Result<Tensor> random_scores(const std::vector<int64_t>& dims, DType type) {
    Tensor t = in_fixed_.random(dims, static_cast<uint32_t>(step_.ones));
    for (int64_t i = 0; i < t.count(); ++i) t.view().as<float>()[i] *= kScores;
    return evaluator_.cast(t, type);
  }
  Status same_rows(const std::vector<float>& a, const std::vector<float>& b, int64_t keys, float tolerance,
                   const Node& n) const {
    for (size_t row = 0; row + static_cast<size_t>(keys) <= a.size(); row += static_cast<size_t>(keys)) {
      size_t seen = row;
      while (seen < row + static_cast<size_t>(keys) && masked(b[seen])) ++seen;
      const float shift = seen < row + static_cast<size_t>(keys) ? a[seen] - b[seen] : 0;
      for (size_t i = row; i < row + static_cast<size_t>(keys); ++i)
        if (masked(a[i]) != masked(b[i]) || !close(a[i], b[i] + shift, tolerance))
          return Status::error(n.label() + " reads scores that differ from those without hidden keys: " +
                               std::to_string(a[i]) + " and " + std::to_string(b[i] + shift));
    }
    return Status::ok();
  }

  // Slice, Split or Gather of tokens or keys: the same ones, counted from the last.
  Status part(const Node& n) const {
    const Node* literal = fixed_.producer(n.out[0]);
    const Status differs = Status::error(n.label() + " takes tokens or keys by their place in the window");
    if (!literal) return differs;
    const Shape &x = shape(n.in[0]), &y = shape(n.out[0]), &before = fixed_.values[n.in[0]].info.shape;
    SymbolValues now;
    now[kSymS] = step_.tokens;
    now[kSymP] = now[kSymW] = step_.past;
    now[kSymT] = step_.tokens + step_.past;
    const auto from_end = [](int64_t place, int64_t extent) {
      return extent - std::clamp<int64_t>(place < 0 ? place + extent : place, 0, extent);
    };
    if (!n.is("Slice")) {
      const int64_t given = n.attr_int("axis", 0);
      const size_t axis = static_cast<size_t>(given < 0 ? given + static_cast<int64_t>(x.size()) : given);
      if (axis >= x.size() || x[axis].is_const()) return Status::ok();
      if (n.is("Split")) return differs;
      const auto a = content_of(fixed_, *literal, 1), b = content_of(lifted_, n, 1);
      if (!a || !b || a->size() != b->size()) return differs;
      for (size_t i = 0; i < a->size(); ++i)
        if (!(*a)[i].is_const() ||
            from_end((*a)[i].value(), before[axis].value()) != from_end((*b)[i].eval(now), x[axis].eval(now)))
          return differs;
      return Status::ok();
    }
    const auto starts = content_of(fixed_, *literal, 1), ends = content_of(fixed_, *literal, 2),
               begins = content_of(lifted_, n, 1), stops = content_of(lifted_, n, 2), axes = content_of(lifted_, n, 3);
    if (!starts || !ends || !begins || !stops || (n.has_input(3) && (!axes || !shape_is_const(*axes)))) return differs;
    for (size_t k = 0; k < starts->size(); ++k) {
      const int64_t given = axes ? (*axes)[k].value() : static_cast<int64_t>(k);
      const size_t a = static_cast<size_t>(given < 0 ? given + static_cast<int64_t>(x.size()) : given);
      if (a >= x.size() || x[a].is_const()) continue;
      if (x[a] == y[a]) continue;
      if (!(*starts)[k].is_const() || !(*ends)[k].is_const()) return differs;
      const int64_t e = before[a].value(), now_e = x[a].eval(now), s = (*starts)[k].value(),
                    now_s = (*begins)[k].eval(now);
      const bool both_begin = s == 0 && now_s == 0;
      if (from_end((*ends)[k].value(), e) != from_end((*stops)[k].eval(now), now_e) ||
          (!both_begin && from_end(s, e) != from_end(now_s, now_e)))
        return differs;
    }
    return Status::ok();
  }

  const FixedWindow& window_;
  const Graph &fixed_, &lifted_;
  Evaluator& evaluator_;
  const Binding binding_;
  Prober in_fixed_, in_lifted_;
  const ValueClasses classes_;
  std::vector<std::pair<ValueId, const Node*>> roots_;  // known values, and who reads them
  std::vector<const Node*> attentions_, parts_;
  Step step_;
};

}  // namespace

Status prove_lifted(const FixedWindow& window, const Graph& fixed, const Graph& lifted, Evaluator& evaluator) {
  return Proof(window, fixed, lifted, evaluator).run();
}

}  // namespace situ
