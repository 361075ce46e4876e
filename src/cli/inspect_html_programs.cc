#include <algorithm>
#include <array>
#include <map>
#include <vector>

#include "cli/common.h"
#include "cli/html.h"
#include "cli/inspect_html.h"

namespace situ::cli {
namespace {

using Json = nlohmann::ordered_json;

// Of a program, at most: blocks that are drawn, blocks in its table, calls in its list, blocks in the enlarged picture.
// So a page of three programs stays below 3 MB, whatever the graph.
constexpr size_t kMostDrawn = 1500, kMostInTable = 40, kMostCalls = 600, kMostEnlarged = 48;

int64_t number_of(const Json& j, const char* key) { return j.at(key).get<int64_t>(); }

// -- kinds of kernels, each with its colour

constexpr int kKinds = 6, kCopy = 5;
const std::array<const char*, kKinds> kKindNames = {"products",          "attention",  "norms",
                                                    "rounding to bytes", "all others", "copies"};

int kind_of(const std::string& op) {
  const auto has = [&](std::initializer_list<const char*> words) {
    return std::any_of(words.begin(), words.end(), [&](const char* w) { return op.find(w) != std::string::npos; });
  };
  if (op == "copy") return kCopy;
  if (has({"Attention", "Softmax"})) return 1;
  if (has({"MatMul", "Gemm", "Conv", "Projections"})) return 0;
  if (has({"Norm"})) return 2;
  if (has({"RoundRows", "QuantizeLinear"})) return 3;
  return 4;
}

std::string kind_class(int kind) { return "k" + std::to_string(kind); }

std::string legend(const std::array<int64_t, kKinds>& counts) {
  std::string items;
  for (int k = 0; k < kKinds; ++k)
    if (counts[static_cast<size_t>(k)] > 0)
      items += "<li class=\"" + kind_class(k) + "\">" + kKindNames[static_cast<size_t>(k)] + " " +
               grouped(counts[static_cast<size_t>(k)]) + "</li>";
  return "<ul class=\"legend\">" + items + "</ul>";
}

// -- one program

struct Block {
  std::string value;
  int64_t offset = 0, bytes = 0;
  int first = 0, last = 0, kind = 0, number = 0;
  int64_t end() const { return offset + bytes; }
};

// The part of a name that tells it from its neighbours': its last three folders.
std::string short_name(const std::string& name) {
  size_t at = name.size();
  for (int i = 0; i < 3 && at != std::string::npos && at > 0; ++i) at = name.rfind('/', at - 1);
  return at == std::string::npos || at + 1 >= name.size() ? name : name.substr(at + 1);
}

struct Calls {
  int first = 0, count = 0, alike = 1;  // alike: stretches of the same operators, one after the other
  int end() const { return first + count; }
};

class Program {
 public:
  explicit Program(const Json& facts) : facts_(facts), name_(text_of(facts, "name")), calls_(facts["calls"]) {
    for (const Json& c : calls_) kinds_.push_back(kind_of(text_of(c, "op")));
    for (const Json& b : facts["blocks"]) {
      Block block{text_of(b, "value"),
                  number_of(b, "offset"),
                  number_of(b, "bytes"),
                  static_cast<int>(number_of(b, "first")),
                  static_cast<int>(number_of(b, "last")),
                  0,
                  static_cast<int>(blocks_.size())};
      blocks_.push_back(std::move(block));
    }
    // A block has the colour of the call that writes it first.
    std::vector<bool> written(blocks_.size());
    for (size_t c = 0; c < calls_.size(); ++c)
      for (const Json& w : calls_[c]["writes"])
        if (w.contains("block") && !written[w["block"].get<size_t>()]) {
          written[w["block"].get<size_t>()] = true;
          blocks_[w["block"].get<size_t>()].kind = kinds_[c];
        }
    by_size_ = blocks_;
    std::stable_sort(by_size_.begin(), by_size_.end(),
                     [](const Block& a, const Block& b) { return a.bytes > b.bytes; });
  }

  std::string lifetimes() const;
  std::string card(const std::string& when) const;

 private:
  int count() const { return static_cast<int>(calls_.size()); }
  int64_t arena() const { return number_of(facts_, "arena_bytes"); }
  std::string id(const Block& b) const { return name_ + "-block-" + std::to_string(b.number); }
  std::string where(const Block& b) const;
  std::string life(const Block& b) const;
  std::string rectangle(const Block& b, bool named) const;
  std::string picture(const Calls& window) const;
  std::string table() const;
  Calls a_layer() const;
  std::string enlarged(const Calls& window) const;
  std::string call_items(int first, int end) const;
  std::string writes_of(const Json& call) const;

  const Json& facts_;
  const std::string name_;
  const Json& calls_;
  std::vector<int> kinds_;  // by call
  std::vector<Block> blocks_, by_size_;
};

std::string Program::where(const Block& b) const { return grouped(b.offset) + " to " + grouped(b.end()); }

std::string Program::life(const Block& b) const {
  return "calls " + grouped(b.first) + " to " + (b.last >= count() ? "the end of the step" : grouped(b.last));
}

// Time is one unit for a call, the arena 1,000 units high, address 0 at the bottom. What is left free between
// neighbours shows where one ends.
std::string Program::rectangle(const Block& b, bool named) const {
  const double scale = 1000.0 / static_cast<double>(std::max<int64_t>(1, arena()));
  const double height = static_cast<double>(b.bytes) * scale, gap = std::min(3.0, height * 0.12);
  const double width = std::min(b.last + 1, count() + 1) - b.first;
  return "<rect" + (named ? " id=\"" + id(b) + "\"" : std::string()) + " class=\"" + kind_class(b.kind) +
         "\" data-bytes=\"" + std::to_string(b.bytes) + "\" x=\"" + std::to_string(b.first) + "\" y=\"" +
         decimal(1000 - static_cast<double>(b.end()) * scale) + "\" width=\"" + decimal(width - 0.12) + "\" height=\"" +
         decimal(height - gap) + "\"><title>" + escaped(short_name(b.value)) + ": " +
         size_text(static_cast<double>(b.bytes)) + ", " + life(b) + "</title></rect>";
}

std::string Program::picture(const Calls& window) const {
  std::string rects;
  const size_t drawn = std::min(kMostDrawn, by_size_.size());
  for (size_t i = 0; i < drawn; ++i) rects += rectangle(by_size_[i], i < kMostInTable);
  int64_t rest = 0;
  for (size_t i = drawn; i < by_size_.size(); ++i) rest += by_size_[i].bytes;
  if (window.count > 0 && window.count < count())
    rects += "<rect class=\"window\" x=\"" + std::to_string(window.first) + "\" y=\"0\" width=\"" +
             std::to_string(window.count) + "\" height=\"1000\"/>";
  const std::string end = grouped(count());
  return "<figure><div class=\"plot\"><div class=\"y\"><span>" + size_text(static_cast<double>(arena())) +
         "</span><span>0</span></div><svg viewBox=\"0 0 " + std::to_string(count() + 1) +
         " 1000\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"Address against call: " +
         grouped(static_cast<int64_t>(drawn)) + " blocks. The largest are listed below.\">" + rects +
         "</svg><div class=\"x\"><span>call 0</span><span>time</span><span>" + end + "</span></div></div>" +
         (drawn < by_size_.size() ? "<figcaption data-bytes=\"" + std::to_string(rest) + "\">and " +
                                        grouped(static_cast<int64_t>(by_size_.size() - drawn)) + " more, " +
                                        size_text(static_cast<double>(rest)) + ", none of them larger than " +
                                        size_text(static_cast<double>(by_size_[drawn].bytes)) + "</figcaption>"
                                  : "") +
         "</figure>";
}

std::string Program::table() const {
  const size_t shown = std::min(kMostInTable, by_size_.size());
  std::string rows;
  for (size_t i = 0; i < shown; ++i) {
    const Block& b = by_size_[i];
    rows += "<tr><th scope=\"row\"><a href=\"#" + id(b) + "\">" + code(b.value) + "</a><small>" +
            kKindNames[static_cast<size_t>(b.kind)] + ", " + life(b) + "; bytes " + where(b) +
            "</small></th><td class=\"n\">" + size_text(static_cast<double>(b.bytes)) + "</td></tr>";
  }
  return "<details><summary>" +
         (shown < by_size_.size() ? "The largest " + std::to_string(shown) + " blocks" : "All blocks") +
         "</summary><p class=\"note\">Each link marks the block in the picture above.</p><table><tbody>" + rows +
         "</tbody></table></details>";
}

// The stretch of calls whose operators come again and again, from the middle: a layer. None: count 0.
Calls Program::a_layer() const {
  const int n = count(), middle = n / 2;
  const auto op = [&](int i) -> const std::string& {
    return calls_[static_cast<size_t>(i)]["op"].get_ref<const std::string&>();
  };
  for (int period = 2; period <= 64 && middle + 2 * period <= n; ++period) {
    int same = 0;
    while (same < period && op(middle + same) == op(middle + period + same)) ++same;
    if (same < period) continue;
    Calls layer{middle, period, 1};
    while (layer.first > 0 && op(layer.first - 1) == op(layer.first - 1 + period)) --layer.first;
    int end = middle + 2 * period;
    while (end < n && op(end) == op(end - period)) ++end;
    layer.alike = (end - layer.first) / period;
    layer.first += layer.alike / 2 * period;
    return layer;
  }
  return {};
}

std::string Program::writes_of(const Json& call) const {
  std::string html;
  for (const Json& w : call["writes"]) {
    if (!html.empty()) html += ", ";
    if (w.contains("block")) {
      const Block& b = blocks_[w["block"].get<size_t>()];
      html += "block " + grouped(b.number) + " at " + grouped(b.offset);
    } else if (w.contains("state")) {
      html += "<strong>slot</strong> of " + code(text_of(w, "state"));
    } else {
      html += text_of(w, "region") + " " + code(text_of(w, "value"));
    }
  }
  return html;
}

std::string Program::call_items(int first, int end) const {
  std::string items;
  for (int i = first; i < end; ++i) {
    const Json& c = calls_[static_cast<size_t>(i)];
    items += "<li><span class=\"i\">" + std::to_string(i) + "</span><span class=\"key " +
             kind_class(kinds_[static_cast<size_t>(i)]) + "\">" + code(text_of(c, "op")) + "</span><span class=\"w\">" +
             writes_of(c) + "</span><small>" + code(text_of(c, "node")) + "</small></li>";
  }
  return items;
}

// The blocks that live in some of the calls, and these calls. Names are shown where there is room, and of what is
// pointed at or has the focus.
std::string Program::enlarged(const Calls& window) const {
  std::vector<Block> shown;
  for (const Block& b : by_size_)
    if (b.first < window.end() && b.last >= window.first && shown.size() < kMostEnlarged) shown.push_back(b);
  if (shown.empty()) return "";
  int64_t low = shown[0].offset, high = shown[0].end();
  for (const Block& b : shown) low = std::min(low, b.offset), high = std::max(high, b.end());
  std::sort(shown.begin(), shown.end(),
            [](const Block& a, const Block& b) { return std::pair(a.first, a.offset) < std::pair(b.first, b.offset); });
  std::string spans;
  for (const Block& b : shown) {
    const double from = std::max(b.first, window.first) - window.first,
                 to = std::min(b.last + 1, window.end()) - window.first;
    const auto height = static_cast<double>(high - low);
    spans += "<span class=\"" + kind_class(b.kind) + (from * 2 > window.count ? " late" : "") +
             (static_cast<double>(b.offset - low) * 2 > height ? " high" : "") +
             "\" tabindex=\"0\" style=\"left:" + decimal(percent(from, window.count)) +
             "%;width:" + decimal(percent(to - from, window.count)) +
             "%;bottom:" + decimal(percent(static_cast<double>(b.offset - low), height)) +
             "%;height:" + decimal(percent(static_cast<double>(b.bytes), height)) + "%\">" + std::to_string(b.number) +
             " " + escaped(short_name(b.value)) + "<em>" + size_text(static_cast<double>(b.bytes)) + ", " + life(b) +
             ", bytes " + where(b) + "</em></span>";
  }
  const std::string calls = "calls " + grouped(window.first) + " to " + grouped(window.end() - 1);
  return "<details open><summary>" +
         (window.alike > 1 ? "One of " + grouped(window.alike) + " stretches of the same operators, enlarged: " + calls
                           : "Enlarged: " + calls) +
         "</summary><div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Blocks of " + calls +
         "\"><div class=\"zoom\">" + spans + "</div><div class=\"ticks\"><span>call " + grouped(window.first) +
         "</span><span>" + grouped(window.end()) +
         "</span></div></div><ol class=\"calls\" aria-label=\"Kernel calls\">" +
         call_items(window.first, window.end()) + "</ol></details>";
}

std::string Program::lifetimes() const {
  const int64_t sum = number_of(facts_, "block_bytes");
  std::string html = "<div class=\"program\"><div class=\"head\"><h3>" + escaped(name_) +
                     "</h3><span class=\"bytes\">" + (calls_.empty() ? "" : size_text(static_cast<double>(arena()))) +
                     "</span></div>";
  if (calls_.empty()) return html + "<p class=\"note\">Compiled when its arrays come.</p></div>";
  const int64_t uses = arena() > 0 ? (sum + arena() / 2) / arena() : 0;
  html += "<p class=\"note\">" + grouped(static_cast<int64_t>(blocks_.size())) + " blocks of " +
          size_text(static_cast<double>(sum)) + " together lie in " + size_text(static_cast<double>(arena())) +
          (uses > 1 ? ": a byte is used for " + grouped(uses) + " values in turn" : "") + ".</p>";
  if (blocks_.empty()) return html + "</div>";
  std::array<int64_t, kKinds> kinds{};
  for (const Block& b : blocks_) ++kinds[static_cast<size_t>(b.kind)];
  Calls window = a_layer();
  if (window.count == 0) window = {std::max(0, count() / 2 - 12), std::min(count(), 24), 1};
  return html + picture(window) + legend(kinds) + enlarged(window) + table() + "</div>";
}

// -- what it calls

std::string Program::card(const std::string& when) const {
  std::array<int64_t, kKinds> kinds{};
  for (const int k : kinds_) ++kinds[static_cast<size_t>(k)];
  std::string strip;
  for (int i = 0, end = 0; i < count(); i = end) {
    end = i + 1;
    while (end < count() && kinds_[static_cast<size_t>(end)] == kinds_[static_cast<size_t>(i)]) ++end;
    strip += "<rect class=\"" + kind_class(kinds_[static_cast<size_t>(i)]) + "\" x=\"" + std::to_string(i) +
             "\" y=\"0\" width=\"" + decimal(end - i) + "\" height=\"1\"/>";
  }
  std::string chips;
  for (const auto& [symbol, value] : facts_["assignment"].items())
    chips += code(symbol + " = " + (value.is_string() ? value.get<std::string>() : value.dump()));
  const int listed = static_cast<int>(std::min(calls_.size(), kMostCalls));
  return "<li class=\"program\" data-bytes=\"" + std::to_string(arena()) + "\"><div class=\"head\"><h3>" +
         escaped(name_) + "</h3><span class=\"bytes\">arena " + size_text(static_cast<double>(arena())) +
         "</span></div><p class=\"note\">" + when + " Graph " + code(text_of(facts_, "graph")) +
         (chips.empty() ? "" : ", assignment <span class=\"chips\">" + chips + "</span>") + "</p>" +
         (count() == 0
              ? "<p class=\"note\">Compiled when its arrays come.</p>"
              : "<svg class=\"strip\" viewBox=\"0 0 " + std::to_string(count()) +
                    " 1\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"" + grouped(count()) +
                    " kernel calls in order, by kind\">" + strip + "</svg>" + legend(kinds) + "<details><summary>" +
                    grouped(count()) + " kernel calls, in order</summary><ol class=\"calls\">" + call_items(0, listed) +
                    "</ol>" +
                    (listed < count() ? "<p class=\"note\">and " + grouped(count() - listed) + " more calls</p>" : "") +
                    "</details>") +
         "</li>";
}

// When a program runs, in a sentence.
std::string when_of(const std::string& name, const Json& facts) {
  if (name == "encode") return "Runs once for a source.";
  if (name == "token") return "Runs again for each token.";
  const std::string chunk = grouped(number_of(facts["memory"], "chunk"));
  const int64_t sequences = number_of(facts["sequences"], "in one step");
  return "Runs for prompts, up to " + chunk + " tokens in a step" +
         (sequences > 1 ? ", and for steps of up to " + grouped(sequences) + " sequences." : ".");
}

}  // namespace

std::string lifetimes_section(const Json& facts) {
  std::string html;
  bool slots = false;
  for (const Json& p : facts["module"]["programs"]) {
    html += Program(p).lifetimes();
    for (const Json& c : p["calls"])
      for (const Json& w : c["writes"]) slots = slots || w.contains("state");
  }
  return std::string(
             "<section id=\"lifetimes\"><h2>Lifetimes: what lies where in the arena, and when</h2><p>Across: the "
             "kernel calls "
             "of one step, in order. Up: addresses. A rectangle is a block: it begins when a call writes it and ends "
             "with the "
             "last call that reads it, then others take its place. No two overlap, and none is moved.") +
         (slots ? " New rows of the KV cache and other states have no block: they are written into slots." : "") +
         "</p>" + html + "</section>";
}

std::string programs_section(const Json& facts) {
  std::string html;
  for (const Json& p : facts["module"]["programs"]) html += Program(p).card(when_of(text_of(p, "name"), facts));
  return "<section id=\"programs\"><h2>Programs: what runs, in order</h2><p>They share weights, states and the "
         "threads; those of steps share an arena, encoders another. With an arena each they would take " +
         size_text(facts["memory"]["arena_bytes_unshared"].get<double>()) + "; these take " +
         size_text(facts["memory"]["arena_bytes"].get<double>()) + ".</p><ol class=\"plain\">" + html +
         "</ol></section>";
}

}  // namespace situ::cli
