#include "cli/inspect_html.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <utility>
#include <vector>

#include "cli/common.h"
#include "cli/html.h"

namespace situ::cli {
namespace {

using Json = nlohmann::ordered_json;

int64_t bytes_of(const Json& j, const char* key) { return j.at(key).get<int64_t>(); }

// -- why nothing is copied

// How values came to lie where they are: as the JSON has it under "placement", in words, and whether a kernel runs.
struct How {
  const char *key, *colour, *name, *why;
};
constexpr const char* kJoined = "joined";  // a Concat "in place"
const How kHows[] = {
    {"view", "h0", "Views", "Another shape, order or part of what is there, read where it lies. Nothing runs."},
    {kJoined, "h1", "Joined in place",
     "A Concat whose operands were computed at their places in the result. Nothing runs."},
    {"computed into state", "h2", "Computed into a slot",
     "New rows of the KV cache or another state, written where later steps read them. No past is joined with them."},
    {"in place", "h3", "In place", "Computed over an operand that nothing reads again."},
    {"computed", "h4", "Computed", "Written once, at the address planned for it."},
    {"host", "h5", "Host", "Integers known before the step, such as shapes. Nothing runs."},
    {"copied", "h6", "Copied", "Bytes that existed elsewhere; named below with the reason."}};

// How of an operator with its count.
using Counts = std::map<std::string, std::vector<std::pair<std::string, int64_t>>>;
Counts counts_of(const Json& placement) {
  Counts counts;
  for (const auto& [op, hows] : placement.items())
    for (const auto& [how, count] : hows.items())
      counts[op == "Concat" && how == "in place" ? kJoined : how].emplace_back(op, count.get<int64_t>());
  for (auto& [how, list] : counts)
    std::stable_sort(list.begin(), list.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  return counts;
}

int64_t count_of(const Counts& counts, const std::string& how) {
  int64_t sum = 0;
  if (const auto it = counts.find(how); it != counts.end())
    for (const auto& [op, count] : it->second) sum += count;
  return sum;
}

// The operators, the most frequent first.
std::string operators_html(const Counts& counts, const std::string& how) {
  constexpr size_t kShown = 4;
  std::string html;
  const auto& list = counts.at(how);
  for (size_t i = 0; i < std::min(kShown, list.size()); ++i)
    html += (i ? ", " : "") + code(list[i].first) + " " + grouped(list[i].second);
  return html + (list.size() > kShown ? ", and " + grouped(static_cast<int64_t>(list.size() - kShown)) + " more" : "");
}

std::string copies_html(const Json& copies) {
  std::string html;
  for (const auto& [program, list] : copies.items())
    for (const Json& c : list)
      html += "<li><span>" + code(text_of(c, "op")) + " " + code(text_of(c, "node")) + " " + code(text_of(c, "shape")) +
              "</span><span>" + program + "</span><small>" + escaped(text_of(c, "reason")) + "</small></li>";
  return html.empty() ? "" : "<h3>What is copied</h3><ul class=\"entries\">" + html + "</ul>";
}

std::string why_section(const Json& facts) {
  std::vector<std::pair<const char*, Counts>> programs;
  for (const auto& [key, name] : {std::pair{"encode", "encode"}, {"prefill", "prompt"}, {"decode", "token"}})
    if (facts["placement"].contains(key)) programs.emplace_back(name, counts_of(facts["placement"][key]));
  std::string head, rows;
  for (const auto& [name, counts] : programs) head += std::string("<th scope=\"col\" class=\"n\">") + name + "</th>";
  for (const How& how : kHows) {
    std::string cells;
    int64_t all = 0;
    for (const auto& [name, counts] : programs) {
      const int64_t count = count_of(counts, how.key);
      all += count;
      cells += std::string("<td class=\"n\" data-program=\"") + name + "\">" + grouped(count) + "</td>";
    }
    if (all == 0 && std::string_view(how.key) != "copied") continue;
    const Counts& token = programs.back().second;
    rows += std::string("<tr><th scope=\"row\"><span class=\"key ") + how.colour + "\">" + how.name + "</span><small>" +
            how.why + (token.count(how.key) ? " " + operators_html(token, how.key) : "") + "</small></th>" + cells +
            "</tr>";
  }
  std::string bar;
  for (const How& how : kHows)
    if (const int64_t count = count_of(programs.back().second, how.key); count > 0)
      bar += std::string("<span class=\"") + how.colour + "\" style=\"flex-grow:" + std::to_string(count) +
             "\" title=\"" + how.name + ": " + grouped(count) + " nodes\"></span>";
  const std::string copies = copies_html(facts["copies"]);
  return std::string("<section id=\"why\"><h2>") +
         (copies.empty() ? "Why nothing has to be copied" : "How values come to their places") +
         "</h2><p>Each kernel writes into a destination that was "
         "planned before the first token. So the nodes of the graph that only move data have nothing left to do. "
         "Nodes after all rewrites, by how their result came to lie where it is:</p><div class=\"panel\">"
         "<div class=\"bar\" aria-hidden=\"true\">" +
         bar +
         "</div><table class=\"hows\"><thead><tr><th scope=\"col\">Nodes of each program (the bar: of the last)</th>" +
         head + "</tr></thead><tbody>" + rows + "</tbody></table></div>" + copies + "</section>";
}

// -- regions

struct Entry {
  std::string label, note;
  int64_t bytes = 0;
};
struct Region {
  const char *colour, *name, *what;
  std::vector<Entry> entries;
  int64_t bytes() const {
    int64_t sum = 0;
    for (const Entry& e : entries) sum += e.bytes;
    return sum;
  }
};

// The operators with at least a thousandth of the bytes, then the others together.
Region weights_region(const Json& memory) {
  Region r{"r0", "weights", "Constants, by the operator that reads them first.", {}};
  const int64_t all = bytes_of(memory, "weights") + bytes_of(memory, "computed");
  Entry others;
  int64_t read = 0, operators = 0;
  for (const Json& c : memory["constants"]) {
    const int64_t tensors = bytes_of(c, "tensors"), bytes = bytes_of(c, "bytes");
    read += bytes;
    if (bytes >= all / 1000) {
      r.entries.push_back({code(text_of(c, "op")), grouped(tensors) + (tensors == 1 ? " tensor" : " tensors"), bytes});
    } else {
      others.bytes += bytes;
      ++operators;
    }
  }
  others.label = "and " + grouped(operators) + (operators == 1 ? " more operator" : " more operators");
  if (operators > 0) r.entries.push_back(others);
  if (all > read)
    r.entries.push_back({"Mapped, not read by a step", "in the files, in a form that no kernel reads", all - read});
  return r;
}

std::string slot_note(const Json& space) {
  for (const auto& [key, unit] : {std::pair{"bytes_per_token", "token"},
                                  {"bytes_per_source_row", "row of a source"},
                                  {"bytes_per_sequence", "sequence and step"}})
    if (space.contains(key))
      return size_text(space[key].get<double>()) + " per " + unit + ", " + grouped(bytes_of(space, "slots")) + " slots";
  return "";
}

// "60 of float16 [1, 3, P, 64]", for the states that a space of this kind has.
std::string states_note(const Json& states, const std::string& kind) {
  std::map<std::string, int64_t> groups;
  for (const Json& s : states) {
    const std::string rule = text_of(s, "rule");
    if ((kind == "whole") == (rule != "append" && rule != "source") && (kind == "whole" || rule == kind))
      ++groups[text_of(s, "type") + " " + text_of(s, "shape")];
  }
  std::string note;
  for (const auto& [what, count] : groups) note += (note.empty() ? "" : "; ") + grouped(count) + " of " + code(what);
  return note;
}

Region state_region(const Json& facts) {
  Region r{"r1",
           "state",
           "What a sequence keeps from step to step, when all slots are full. A page takes memory once a slot in it is "
           "written.",
           {}};
  for (const Json& s : facts["module"]["spaces"]) {
    const std::string states = states_note(facts["states"], text_of(s, "kind"));
    r.entries.push_back({"Space " + code(text_of(s, "name")) + " (" + text_of(s, "kind") + ")",
                         slot_note(s) + (states.empty() ? "" : ": " + states), bytes_of(s, "bytes")});
  }
  return r;
}

std::vector<Region> regions_of(const Json& facts) {
  const Json& memory = facts["memory"];
  const int64_t shared = bytes_of(memory, "arena_bytes"), unshared = bytes_of(memory, "arena_bytes_unshared");
  std::string names;
  for (const Json& p : facts["module"]["programs"]) names += (names.empty() ? "" : ", ") + text_of(p, "name");
  return {
      weights_region(memory),
      state_region(facts),
      {"r2",
       "arena",
       "Activations of one step.",
       {{"One arena for " + names,
         "the largest step's, since programs run one after the other; with an arena each they would take " +
             size_text(static_cast<double>(unshared)),
         shared}}},
      {"r3",
       "io",
       "What the host writes for a step and reads after it.",
       {{"Ids, positions and other integers, logits", "of all programs but the encoder's", bytes_of(memory, "io")}}}};
}

std::string entry_html(const Entry& e, const Region& r) {
  const std::string share = r.entries.size() < 2
                                ? ""
                                : std::string("<div class=\"bar thin\" aria-hidden=\"true\"><span class=\"") +
                                      r.colour + "\" style=\"flex:0 0 " +
                                      decimal(percent(static_cast<double>(e.bytes), static_cast<double>(r.bytes()))) +
                                      "%\"></span></div>";
  return "<li data-bytes=\"" + std::to_string(e.bytes) + "\"><span>" + e.label +
         (e.note.empty() ? "" : " <small>" + e.note + "</small>") + "</span><span class=\"bytes\">" +
         size_text(static_cast<double>(e.bytes)) + "</span>" + share + "</li>";
}

std::string region_html(const Region& r, double whole) {
  std::string rows;
  for (const Entry& e : r.entries) rows += entry_html(e, r);
  const auto bytes = static_cast<double>(r.bytes());
  return std::string("<div class=\"panel\"><div class=\"head\"><h3><span class=\"key ") + r.colour + "\">" + r.name +
         "</span></h3><span class=\"bytes\">" + size_text(bytes) + " · " +
         decimal(std::round(percent(bytes, whole) * 10) / 10) + " %</span></div><small>" + r.what +
         "</small><ul class=\"entries\">" + rows + "</ul></div>";
}

std::string budget_note(const Json& memory) {
  if (!memory.contains("budget")) return "";
  const int64_t gained = bytes_of(memory, "slots_gained");
  return "<p>A budget of " + size_text(memory["budget"].get<double>()) + " holds " +
         grouped(bytes_of(memory, "slots_in_budget")) + " slots" +
         (gained > 0 ? ", " + grouped(gained) + " of them because programs share the arena" : "") + ".</p>";
}

std::string regions_section(const Json& facts) {
  const std::vector<Region> regions = regions_of(facts);
  const auto whole = static_cast<double>(bytes_of(facts["memory"], "bytes"));
  std::string bar, panels;
  for (const Region& r : regions) {
    if (r.bytes() > 0)
      bar += std::string("<span class=\"") + r.colour + "\" style=\"flex-grow:" + std::to_string(r.bytes()) +
             "\" title=\"" + r.name + ": " + size_text(static_cast<double>(r.bytes())) + "\"></span>";
    if (!r.entries.empty()) panels += region_html(r, whole);
  }
  return "<section id=\"regions\"><h2>Regions: what takes the memory</h2><p>A region is memory with one owner. "
         "Together " +
         size_text(whole) + " when every slot is full.</p>" + budget_note(facts["memory"]) +
         "<div class=\"bar\" aria-hidden=\"true\">" + bar + "</div>" + panels + "</section>";
}

// -- ports

std::string names_of(const Json& list) {
  std::string names;
  for (const Json& name : list) names += (names.empty() ? "" : ", ") + escaped(name.get<std::string>());
  return names.empty() ? "nobody" : names;
}

std::string ports_section(const Json& facts) {
  std::string rows, handed;
  for (const Json& p : facts["module"]["ports"])
    rows += "<li data-bytes=\"" + std::to_string(bytes_of(p, "bytes")) + "\"><span>" + escaped(text_of(p, "writer")) +
            "</span><span class=\"to\">" + code(text_of(p, "name")) + "</span><span class=\"to\">" +
            names_of(p["readers"]) + "</span><span class=\"bytes\">" + size_text(p["bytes"].get<double>()) +
            "</span></li>";
  for (const Json& s : facts["module"]["spaces"])
    handed += "<li><span>" + names_of(s["writers"]) + "</span><span class=\"to\">slots of " + code(text_of(s, "name")) +
              "</span><span class=\"to\">" + names_of(s["readers"]) + "</span><span class=\"bytes\"></span></li>";
  return "<section id=\"ports\"><h2>Ports: what crosses a border</h2><p>A port is a buffer between a program and its "
         "caller, at its largest step. Who writes, what, who reads:</p><div class=\"panel\"><ul class=\"flow\">" +
         rows +
         "</ul></div><p>Between steps, and from one program to another, nothing is handed over: what is written "
         "into a slot is read there.</p><div class=\"panel\"><ul class=\"flow\">" +
         handed + "</ul></div></section>";
}

// -- the page

std::string tile(const char* name, const std::string& figure, const std::string& note) {
  return std::string("<div><dt>") + name + "</dt><dd>" + figure + " <small>" + note + "</small></dd></div>";
}

std::string header(const Json& facts, const std::string& title) {
  const Json &memory = facts["memory"], &nodes = facts["nodes"];
  int64_t copies = 0;
  for (const auto& [program, list] : facts["copies"].items()) copies += static_cast<int64_t>(list.size());
  const bool later = !facts["compiled later"].empty();
  const std::string lead =
      copies > 0 ? "<strong>" + grouped(copies) + (copies == 1 ? " node copies" : " nodes copy") +
                       " bytes that exist elsewhere.</strong> Everything else has an address before the first token."
                 : std::string("<strong>0 bytes are copied") + (later ? " by the decoder" : "") +
                       ".</strong> Every value has an address before the first token, and is "
                       "written where it will be read.";
  const int64_t per_token = bytes_of(memory, "state_bytes_per_token");
  const auto size = [&](const char* key) { return size_text(memory[key].get<double>()); };
  return "<header><p class=\"eyebrow\">Situ · placement</p><h1>" + title + "</h1><p class=\"meta\">" +
         code(text_of(facts, "file")) + "<br>" + escaped(text_of(facts, "producer")) + " · kernels for " +
         escaped(text_of(facts, "isa")) + " · " + grouped(bytes_of(nodes, "in file")) +
         (bytes_of(nodes, "in file") == 1 ? " node" : " nodes") + " in the file, " +
         grouped(bytes_of(nodes, "after passes")) + " after rewrites</p><p class=\"lead\">" + lead + "</p>" +
         (later ? "<p class=\"note\">The encoder is compiled when its arrays come. It is not in this picture.</p>"
                : "") +
         "<dl class=\"tiles\">" +
         tile("Weights", size_text(memory["weights"].get<double>() + memory["computed"].get<double>()),
              "mapped and packed") +
         (per_token > 0 ? tile("State", size_text(static_cast<double>(per_token)),
                               "per token, " + grouped(bytes_of(memory, "slots")) + " slots")
                        : tile("State", size("state_fixed_bytes"), "per sequence")) +
         tile("Arena", size("arena_bytes"), "shared; " + size("arena_bytes_unshared") + " if it were not") +
         tile("Kernel calls", grouped(bytes_of(nodes, "kernel calls per token")), "per token") +
         "</dl><nav aria-label=\"Sections\"><ul><li><a href=\"#why\">Why no copies</a></li><li><a href=\"#regions\">"
         "Regions</a></li><li><a href=\"#lifetimes\">Lifetimes</a></li><li><a href=\"#programs\">Programs</a></li><li>"
         "<a href=\"#ports\">Ports</a></li><li><a href=\"#words\">Words</a></li></ul></nav></header>";
}

constexpr const char* kWords =
    "<section id=\"words\"><h2>Words</h2><dl class=\"words\"><dt>View</dt><dd>Where the elements of a value lie: "
    "region, "
    "offset, strides, shape. It never owns memory.</dd><dt>Block</dt><dd>Bytes of the arena that hold a value from the "
    "call that writes it to the last one that reads it; then other blocks may have them.</dd><dt>Slot</dt><dd>The "
    "place "
    "of one row in all states of a space. A sequence is a list of runs of slots: windows, forks, beams and shared "
    "prefixes edit the list and move no byte.</dd><dt>Program</dt><dd>A graph under an assignment of some symbols, "
    "compiled and placed. S: new tokens of a step; P: past tokens; L: tokens whose logits are wanted; E: rows of an "
    "encoder's output.</dd><dt>Port</dt><dd>A buffer that crosses the border of a program.</dd></dl></section>";

}  // namespace

std::string html_page(const Json& facts) {
  const std::filesystem::path file = text_of(facts, "file");
  const std::string title = escaped((file.parent_path().filename() / file.filename()).string());
  return "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta "
         "http-equiv=\"Content-Security-Policy\" "
         "content=\"default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'\"><meta "
         "name=\"viewport\" content=\"width=device-width, initial-scale=1\"><title>" +
         title + " · placement</title><style>" + kPageStyle +
         "</style></head><body><a class=\"skip\" href=\"#regions\">Skip to the regions</a>" + header(facts, title) +
         "<main>" + why_section(facts) + regions_section(facts) + lifetimes_section(facts) + programs_section(facts) +
         ports_section(facts) + kWords +
         "</main><footer><p class=\"note\">Written by situ inspect. The figures are those "
         "of situ inspect --json.</p></footer></body></html>\n";
}

}  // namespace situ::cli
