#include "serve/out.h"

namespace situ::serve {
namespace {

struct Fold {
  WholeAnswer::Choice& to;

  void operator()(const Begun&) const {}
  void operator()(const ReasoningPiece& piece) const { to.reasoning += piece.text; }
  void operator()(const TextPiece& piece) const { to.text += piece.text; }
  void operator()(const CallBegun& call) const { to.calls.push_back({call.name, "", false}); }
  void operator()(const ArgumentsPiece& piece) const { to.calls[piece.index].arguments_json += piece.json; }
  void operator()(const CallEnded& call) const { to.calls[call.index].ended = true; }
  void operator()(const Ended& end) const { to.end = end; }
  void operator()(const Finished&) const {}
  void operator()(const Refusal&) const {}
};

}  // namespace

void WholeAnswer::put(const Out& out) {
  if (const Finished* f = std::get_if<Finished>(&out.what)) finished = *f;
  if (std::holds_alternative<Finished>(out.what) || std::holds_alternative<Refusal>(out.what)) return;
  if (out.choice >= choices.size()) choices.resize(out.choice + 1);
  Choice& to = choices[out.choice];
  std::visit(Fold{to}, out.what);
  to.tokens.insert(to.tokens.end(), out.tokens.begin(), out.tokens.end());
}

}  // namespace situ::serve
