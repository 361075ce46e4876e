#include "base/reasons.h"

#include <algorithm>

namespace situ {

void ReasonList::add(const Reason& reason) {
  const auto same = std::find_if(reasons_.begin(), reasons_.end(), [&](const Reason& r) {
    return r.kind == reason.kind && r.op == reason.op && r.domain == reason.domain && r.opset == reason.opset &&
           r.detail == reason.detail;
  });
  if (same != reasons_.end())
    same->count += reason.count;
  else
    reasons_.push_back(reason);
}

void ReasonList::add(const Status& error, Reason::Kind otherwise) {
  if (error.is_ok()) return;
  const Status told = error.or_reason(otherwise);
  for (const Reason& reason : told.reasons()) add(reason);
  if (first_.is_ok()) first_ = told;
  if (texts_ == kMostTexts) {
    ++left_out_;
    return;
  }
  text_ += (text_.empty() ? "" : "; ") + told.message();
  ++texts_;
}

Status ReasonList::status() const {
  if (first_.is_ok()) return first_;
  const std::string more = left_out_ > 0 ? "; and " + std::to_string(left_out_) + " more" : "";
  return Status::error(first_.code(), text_ + more).because(reasons_);
}

bool holds_for_any_step(const Status& error) {
  const Reasons& reasons = error.reasons();
  return error.code() == Code::kUnsupportedModel && !reasons.empty() &&
         std::all_of(reasons.begin(), reasons.end(), [](const Reason& r) {
           return r.kind == Reason::Kind::kOperator || r.kind == Reason::Kind::kAttribute ||
                  r.kind == Reason::Kind::kOpset;
         });
}

}  // namespace situ
