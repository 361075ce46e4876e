// Windows: sequences without an end. Attention gets the window that the caller asks for, where it has none that is
// narrower; the state may then let go of what has left it. A table of rotary embeddings ends somewhere, so it is
// recognised by what it holds, and its rows are computed for the tokens of each step.
#include <algorithm>
#include <cmath>

#include "passes/context/builder.h"
#include "passes/context/pass_context.h"
#include "passes/host/distance_bias.h"
#include "passes/host/index_form.h"
#include "passes/host/probe.h"
#include "passes/window/limit_window.h"

namespace situ {

namespace {

// Tables as exporters make them: the angle of a row is rounded to float, which at row 8,191 is 2^-12; half precision
// rounds by as much.
constexpr double kTableError = 2e-3;

struct Tables {
  RotaryRows cos, sin;
};

// Angles of row 1, made finer by rows further and further down, where the same error of an angle weighs more.
std::optional<Tables> closed_form(const Tensor& cos, const Tensor& sin) {
  if (cos.rank() != 2 || sin.rank() != 2 || cos.dims() != sin.dims() || cos.dims()[0] < 2) return std::nullopt;
  const int64_t rows = cos.dims()[0], width = cos.dims()[1];
  const std::vector<double> c = cos.to_f64(), s = sin.to_f64();
  Tables t;
  t.sin.sine = true;
  for (int64_t i = 0; i < width; ++i) {
    const double scale = c[static_cast<size_t>(i)];
    auto turned = [&](int64_t row, double angle) {  // how far the row is from that angle
      const double at = std::atan2(s[static_cast<size_t>(row * width + i)], c[static_cast<size_t>(row * width + i)]);
      return std::remainder(at - angle, 2 * M_PI);
    };
    double angle = 0;
    for (int64_t row = 1;; row = std::min(2 * row, rows - 1)) {
      angle += turned(row, angle * static_cast<double>(row)) / static_cast<double>(row);
      if (row == rows - 1) break;
    }
    for (int64_t row = 0; row < rows; ++row) {
      const double at = angle * static_cast<double>(row);
      if (!(std::abs(scale * std::cos(at) - c[static_cast<size_t>(row * width + i)]) <=
            kTableError * std::abs(scale)) ||
          !(std::abs(scale * std::sin(at) - s[static_cast<size_t>(row * width + i)]) <= kTableError * std::abs(scale)))
        return std::nullopt;
    }
    for (RotaryRows* r : {&t.cos, &t.sin}) {
      r->angles.push_back(angle);
      r->scales.push_back(scale);
    }
  }
  return t;
}

class Limiter {
 public:
  explicit Limiter(PassContext& context)
      : context_(context), graph_(context.graph), prober_(graph_, context.binding, context.evaluator) {}

  Status run(int64_t window, int64_t first) {
    for (Node& n : graph_.nodes) {
      if (n.is("Attention", "situ"))
        SITU_RETURN_IF_ERROR(limit(n, window, first));
      else if (n.is("CausalConv", "situ"))
        SITU_RETURN_IF_ERROR(check_taps(n, window));
      else if (reads_all(n))
        return Status::error(Code::kInvalidArgument, "no window: the attention of " + n.label() +
                                                         " was not recognised, and reads the whole past");
      if (n.is("Rotary", "situ") && n.has_input(3) && graph_.values[n.in[1]].constant.present()) unbind(n);
    }
    graph_.rebuild_links();
    return Status::ok();
  }

 private:
  bool reads_all(const Node& n) const {
    if (!n.def || n.def->placement == Placement::kView || n.def->placement == Placement::kConcat) return false;
    return std::any_of(n.in.begin(), n.in.end(), [&](ValueId v) {
      if (v == kNoValue || prober_.known(v)) return false;
      const Shape& s = graph_.values[v].info.shape;
      return std::any_of(s.begin(), s.end(), [](const Dim& d) { return d.depends_on(kSymP); });
    });
  }

  // Rows that left the window are not there any more.
  Status check_taps(const Node& n, int64_t window) const {
    const Dim& taps = graph_.values[n.in[2]].info.shape[0];
    if (taps.is_const() && taps.value() <= window) return Status::ok();
    return Status::error("no window of " + std::to_string(window) + ": " + n.label() + " reads " + taps.str() +
                         " tokens");
  }

  Status limit(Node& n, int64_t window, int64_t first) {
    // Keys of another source stay: they are no tokens of the sequence.
    const Dim& keys = graph_.values[n.in[1]].info.shape[2];
    if (!keys.depends_on(kSymP) && !keys.depends_on(kSymS)) return Status::ok();
    if (n.attr_int("causal", 0) == 0)
      return Status::error(Code::kInvalidArgument, "no window: " + n.label() + " is not causal");
    if (n.has_input(3)) {
      const Shape& bias = graph_.values[n.in[3]].info.shape;
      if (std::any_of(bias.begin(), bias.end(), [](const Dim& d) { return d.depends_on(kSymP); }))
        return Status::error(Code::kInvalidArgument,
                             "no window: " + n.label() + " has a mask or bias over the whole sequence");
    }
    if (const int64_t known = std::min(context_.context_length, kMostDistances);
        n.has_input(6) && (first > 0 || window > known))
      return Status::error(Code::kInvalidArgument,
                           "no window: " + n.label() + " has a bias by distance, known below " + std::to_string(known) +
                               (first > 0 ? ", and the first tokens are further and further away" : ""));
    // A window of the model's own that is no wider hides the first tokens too: the model never saw them beside it.
    const int64_t own = n.attr_int("window", 0);
    const bool limits = own <= 0 || window < own;
    n.set_int("window", limits ? window : own);
    n.set_int("first", limits ? first : 0);
    return Status::ok();
  }

  // Position p of the tokens reads row p, without an end: then the rows may come from the host.
  bool plain_positions(ValueId v) {
    const Shape& shape = graph_.values[v].info.shape;
    for (size_t a = 0; a + 1 < shape.size(); ++a)
      if (shape[a] != Dim(1)) return false;
    const std::optional<IndexForm> form =
        IndexForms(graph_, context_.binding, prober_, context_.evaluator, 0, 1).find(v);
    return form && !form->has_table() && !shape.empty() && (shape.back() == Dim(1) || form->steps.back() == 1) &&
           form->offset == (context_.phase == Phase::kFirst ? Dim(0) : Dim::symbol(kSymP));
  }

  void unbind(Node& n) {
    const std::pair<ValueId, ValueId> key{n.in[1], n.in[2]};
    if (!rows_.count(key)) {
      rows_[key] = {kNoValue, kNoValue};
      const Tensor &cos = graph_.values[key.first].constant, &sin = graph_.values[key.second].constant;
      const std::optional<Tables> t = sin.present() && plain_positions(n.in[3]) ? closed_form(cos, sin) : std::nullopt;
      if (t)
        rows_[key] = {input(key.first, t->cos), input(key.second, t->sin)};
      else
        context_.note("rotary table kept", n.name, "not of multiples of angles, or not read by position");
    }
    const auto [cos, sin] = rows_[key];
    if (cos == kNoValue) return;
    n.in[1] = cos;
    n.in[2] = sin;
    n.in[3] = kNoValue;
  }

  ValueId input(ValueId table, const RotaryRows& rows) {
    const ValueId v = graph_.add_value(graph_.values[table].name + "/rows", DType::kF32);
    const Dim tokens = context_.phase == Phase::kDecode ? Dim(1) : Dim::symbol(kSymS);
    graph_.values[v].info = {DType::kF32, true, {Dim(1), Dim(1), tokens, Dim(rows.width())}, std::nullopt};
    graph_.inputs.push_back(v);
    context_.binding.inputs[v] = InputRole::kRotaryRows;
    context_.binding.rotary[v] = rows;
    return v;
  }

  PassContext& context_;
  Graph& graph_;
  Prober prober_;
  std::map<std::pair<ValueId, ValueId>, std::pair<ValueId, ValueId>> rows_;  // of a pair of tables; kNoValue: they stay
};

}  // namespace

Status limit_window(PassContext& context, int64_t window, int64_t first) { return Limiter(context).run(window, first); }

}  // namespace situ
