// Answers that are messages, each with a header: [<|start|>ROLE][ to=functions.N]<|channel|>CHANNEL[ to=functions.N]
// [<|constrain|>json]<|message|>BODY, up to <|end|>, <|call|>, <|return|> or the end of the answer. Reasoning stands in
// the channel analysis, a call is what has a recipient, the rest is text.
#include <array>
#include <utility>

#include "text/dialog/call_reader.h"
#include "text/dialog/literal_scanner.h"
#include "text/dialog/marks.h"
#include "text/dialog/spelling.h"

namespace situ {
namespace {

constexpr std::string_view kMessage = "<|message|>", kTo = "to=functions.";
constexpr std::array<std::string_view, 4> kEnds = {"<|end|>", "<|call|>", "<|return|>", "<|start|>"};
constexpr size_t kMostHeader = 1000;

class ChannelSpelling : public AnswerReader::Spelling {
 public:
  ChannelSpelling(Form form, std::vector<Tool> tools) : tools_(std::move(tools)) { (void)form; }
  void read(std::string& text, bool last) override;
  bool in_call() const override { return broken_ || part_ == Part::kCall; }
  bool in_reasoning() const override { return part_ == Part::kReasoning; }
  bool cuts_call() const override {
    return in_call() || (part_ == Part::kHeader && !tools_.empty() && text.find(kTo) != std::string::npos);
  }

 private:
  enum class Part { kHeader, kReasoning, kText, kCall, kSkip };
  bool step(std::string_view rest, bool last);
  bool read_header(std::string_view rest, bool last);
  bool read_arguments(std::string_view rest);
  void begin_body(std::string_view header);
  void put(std::string_view text);

  const std::vector<Tool> tools_;
  Part part_ = Part::kHeader;
  size_t at_ = 0;
  bool broken_ = false, first_ = true;
  bool any_ = false;  // something of the arguments was read
  LiteralScanner scanner_;
};

void ChannelSpelling::read(std::string& text, bool last) {
  // The end of an answer that was cut decides nothing: what may begin a mark, or a header, is left out.
  while (step(std::string_view(text).substr(at_), last && !cut)) {
  }
  text.erase(0, at_);
  at_ = 0;
  if (last) text.clear();
}

void ChannelSpelling::put(std::string_view text) {
  if (part_ == Part::kReasoning) out.reasoning(text);
  if (part_ == Part::kText) out.text(text);
}

bool ChannelSpelling::step(std::string_view rest, bool last) {
  if (part_ == Part::kHeader) return read_header(rest, last);
  if (part_ == Part::kCall) return read_arguments(rest);
  size_t at = rest.find('<');
  for (; at != std::string_view::npos; at = rest.find('<', at + 1)) {
    bool begun = false;
    for (const std::string_view end : kEnds) {
      const MarkMatch match = match_mark(rest.substr(at), end);
      begun = begun || (match.kind == MarkMatch::Kind::kBegun && !last);
      if (match.kind != MarkMatch::Kind::kWhole) continue;
      put(rest.substr(0, at));
      at_ += at + match.size;
      part_ = Part::kHeader;
      return true;
    }
    if (!begun) continue;
    put(rest.substr(0, at));
    at_ += at;
    return false;
  }
  put(rest);
  at_ += rest.size();
  return false;
}

// An answer without any header is text.
bool ChannelSpelling::read_header(std::string_view rest, bool last) {
  const size_t end = rest.find(kMessage);
  if (end != std::string_view::npos) {
    begin_body(rest.substr(0, end));
    at_ += end + kMessage.size();
    first_ = false;
    return true;
  }
  const std::string_view head = trimmed(rest);
  const bool header =
      head.empty() || !first_ || head[0] == '<' || kTo.starts_with(head.substr(0, kTo.size())) || head.starts_with(kTo);
  const bool mark = head.starts_with('<') && match_mark(head, "<|channel|>").kind == MarkMatch::Kind::kNo &&
                    match_mark(head, "<|start|>").kind == MarkMatch::Kind::kNo;
  if ((header && !(first_ && mark) && rest.size() < kMostHeader && !last) || (rest.empty() && last) || !first_) {
    if (rest.size() >= kMostHeader) at_ += rest.size(), part_ = Part::kSkip;
    return false;
  }
  first_ = false, part_ = Part::kText;
  return true;
}

void ChannelSpelling::begin_body(std::string_view header) {
  const size_t to = header.find(kTo);
  if (to != std::string_view::npos && !tools_.empty()) {
    const std::string_view name = header.substr(to + kTo.size());
    out.begin_call(std::string(name.substr(0, name_size(name))));
    scanner_ = LiteralScanner(), any_ = false;
    part_ = Part::kCall;
    return;
  }
  part_ = header.find("analysis") != std::string_view::npos ? Part::kReasoning : Part::kText;
}

bool ChannelSpelling::read_arguments(std::string_view rest) {
  for (const char byte : rest) {
    std::string json;
    const LiteralScanner::State state = scanner_.feed(byte, json);
    if (state == LiteralScanner::State::kFault || (!any_ && !json.empty() && json[0] != '{')) {
      broken_ = true, part_ = Part::kSkip;
      return true;
    }
    ++at_;
    any_ = any_ || !json.empty();
    out.arguments(json);
    if (state != LiteralScanner::State::kDone) continue;
    out.end_call();
    part_ = Part::kSkip;
    return true;
  }
  return false;
}

}  // namespace

std::unique_ptr<AnswerReader::Spelling> channel_spelling(Form form, std::vector<Tool> tools) {
  return std::make_unique<ChannelSpelling>(std::move(form), std::move(tools));
}

}  // namespace situ
