// The last token that fits the context must have its place in every table that is read by position.
#include <algorithm>
#include <optional>

#include "passes/context/pass_context.h"
#include "passes/host/probe.h"
#include "passes/host/room.h"

namespace situ {

int64_t most_that(int64_t most, const std::function<bool(int64_t tokens)>& holds) {
  int64_t least = 0;
  while (least < most) {
    const int64_t middle = least + (most - least + 1) / 2;
    if (holds(middle))
      least = middle;
    else
      most = middle - 1;
  }
  return least;
}

Status no_room(const PassContext& context, int64_t length, const std::string& why) {
  if (context.endless)
    return Status::error(Code::kInvalidArgument, "no window, with which positions have no end: " + why);
  return Status::error(Code::kContextExceeded,
                       "a context of " + std::to_string(length) + " tokens does not fit: " + why);
}

namespace {

class Tables {
 public:
  explicit Tables(PassContext& context)
      : context_(context), graph_(context.graph), prober_(graph_, context.binding, context.evaluator) {}

  Status check() {
    std::optional<Status> wrong;
    int64_t length = context_.length;
    for (const Node& n : graph_.nodes) {
      const std::optional<Read> beyond = read_beyond(n, length);
      if (!beyond) continue;
      wrong = no_room(
          context_, length,
          n.label() + " reads row " + std::to_string(beyond->row) + " of a table of " + std::to_string(beyond->rows));
      length = most_that(length, [&](int64_t tokens) { return !read_beyond(n, tokens); });
      context_.holds = {{length, n.label() + " reads a table of " + std::to_string(beyond->rows) + " rows"}};
    }
    return wrong.value_or(Status::ok());
  }

 private:
  struct Read {
    int64_t row = 0, rows = 0;
  };

  // What the last of so many tokens would read beyond the end of a table.
  std::optional<Read> read_beyond(const Node& n, int64_t length) {
    const bool rotary = n.is("Rotary", "situ") && n.has_input(3);
    if (!n.is("Gather") && !n.is("GatherElements") && !rotary) return std::nullopt;
    const ValueId table = rotary ? n.in[1] : n.in[0], index = rotary ? n.in[3] : n.in[1];
    const int64_t given = rotary ? 0 : n.attr_int("axis", 0), rank = rank_of(table),
                  axis = given < 0 ? given + rank : given;
    if (length < 1 || !prober_.known(table) || !prober_.host(index) || axis < 0 || axis >= rank) return std::nullopt;
    // An encoder has all of its tokens at once; a table of distances between them is none of positions.
    const Shape& indices = graph_.values[index].info.shape;
    const auto by_token = [](const Dim& d) { return d.depends_on(kSymS); };
    if (context_.encoder && std::count_if(indices.begin(), indices.end(), by_token) > 1) return std::nullopt;
    const int64_t tokens = context_.encoder ? length : 1, past = length - tokens;
    const Result<Tensor> read = prober_.host_value(index, tokens, past);
    if (!read.is_ok() || dtype_is_float(read->type())) return std::nullopt;
    const int64_t rows = prober_.dims(table, tokens, past)[static_cast<size_t>(axis)];
    for (const int64_t row : read->to_i64())
      if (row >= rows) return Read{row, rows};
    return std::nullopt;
  }
  int64_t rank_of(ValueId v) const { return static_cast<int64_t>(graph_.values[v].info.shape.size()); }

  PassContext& context_;
  const Graph& graph_;
  Prober prober_;
};

}  // namespace

Status check_positions(PassContext& context) {
  if (context.phase == Phase::kFirst && !context.encoder) return Status::ok();
  return Tables(context).check();
}

}  // namespace situ
