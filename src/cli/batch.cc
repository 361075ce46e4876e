// `situ batch`: a file of requests, one a line, answered in shared steps; answers are written as they finish.
#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <deque>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "base/text_encoding.h"
#include "cli/commands.h"
#include "cli/interrupts.h"
#include "cli/models.h"
#include "cli/options.h"
#include "serve/body_answer.h"
#include "serve/json_body.h"
#include "serve/protocols/openai/embeddings.h"

namespace situ::cli {
namespace {

namespace fs = std::filesystem;
using serve::Json;
using serve::Refusal;
using Clock = std::chrono::steady_clock;

constexpr size_t kLongestLine = size_t{64} << 20;

std::string failure(const std::string& path, const std::string& what) {
  return path + ": " + what + ": " + std::strerror(errno);
}

std::string line_of(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

class Descriptor {
 public:
  explicit Descriptor(int number = -1, bool owned = true) : number_(number), owned_(owned) {}
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)), owned_(other.owned_) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    std::swap(owned_, other.owned_);
    return *this;
  }
  ~Descriptor() {
    if (owned_ && number_ >= 0) close(number_);
  }
  int number() const { return number_; }

 private:
  int number_;
  bool owned_;
};

Status write_all(int descriptor, std::string_view text, const std::string& name) {
  while (!text.empty()) {
    const ssize_t written = write(descriptor, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return Status::error(failure(name, "cannot be written"));
    text.remove_prefix(static_cast<size_t>(written));
  }
  return Status::ok();
}

// Lines of a file or a pipe, as far as they have come.
class Lines {
 public:
  struct Line {
    std::string text;
    bool too_long = false, whole = true;  // whole: a newline ends it
  };
  explicit Lines(Descriptor file) : file_(std::move(file)) {}
  int descriptor() const { return file_.number(); }
  // None: the line has not come, or, ended(), there are no more.
  std::optional<Line> next() {
    if (!begun_) return std::nullopt;
    const size_t end = buffer_.find('\n', looked_at_);
    looked_at_ = end == std::string::npos ? buffer_.size() : 0;
    if (end == std::string::npos && !(at_end_ && (!buffer_.empty() || skipping_))) return std::nullopt;
    Line line{buffer_.substr(0, end), skipping_, end != std::string::npos};
    buffer_.erase(0, end == std::string::npos ? end : end + 1);
    line.too_long = line.too_long || line.text.size() > kLongestLine;
    skipping_ = false;
    return line;
  }
  // Whether next() has one.
  bool ready() const {
    return begun_ && ((at_end_ && !ended()) || buffer_.find('\n', looked_at_) != std::string::npos);
  }
  bool ended() const { return at_end_ && buffer_.empty() && !skipping_; }
  // Reads what there is, waiting for some. Error: it cannot be read, or is no UTF-8 by its first bytes.
  Status read_more(const std::string& name) {
    constexpr size_t kPiece = size_t{256} << 10;
    const size_t size = buffer_.size();
    buffer_.resize(size + kPiece);
    const ssize_t got = read(file_.number(), buffer_.data() + size, kPiece);
    buffer_.resize(size + static_cast<size_t>(std::max<ssize_t>(got, 0)));
    if (got < 0 && errno != EINTR) return Status::error(failure(name, "cannot be read"));
    at_end_ = got == 0;
    // A line tells as much as the bytes that would be waited for.
    if (!begun_ && (at_end_ || buffer_.size() >= kEncodingBytes || buffer_.find('\n') != std::string::npos)) {
      SITU_RETURN_IF_ERROR(to_plain_utf8(name == kStandard ? "standard input" : name, &buffer_));
      begun_ = true;
    }
    if (buffer_.size() > kLongestLine && buffer_.find('\n', looked_at_) == std::string::npos) {
      skipping_ = true;
      buffer_.clear();
      looked_at_ = 0;
    }
    return Status::ok();
  }

 private:
  Descriptor file_;
  std::string buffer_;
  size_t looked_at_ = 0;  // no newline before
  bool begun_ = false;    // the first bytes were looked at
  bool at_end_ = false, skipping_ = false;
};

Result<Lines> open_lines(const std::string& path) {
  if (path == kStandard) return Lines(Descriptor(STDIN_FILENO, false));
  Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::error_code unknown;
  if (file.number() >= 0 && fs::is_directory(path, unknown)) return Status::error(path + ": is a folder");
  if (file.number() < 0) return Status::error(failure(path, "cannot be read"));
  return Lines(std::move(file));
}

// What an earlier run has answered.
struct Answered {
  std::unordered_set<std::string> custom_ids, ids;
  bool has(const std::string& id, const std::optional<std::string>& custom_id) const {
    return custom_id ? custom_ids.contains(*custom_id) : ids.contains(id);
  }
};

// Whether a line of the output stays; it is added to what is answered. None: it is no such line.
std::optional<bool> keeps(const std::string& text, Answered* answered) {
  const Json line = Json::parse(text, nullptr, false);
  if (!line.is_object() || !line.value("id", Json()).is_string()) return std::nullopt;
  const Json custom_id = line.value("custom_id", Json()), response = line.value("response", Json());
  int64_t status = 0;
  bool by_id = !custom_id.is_string();
  if (response.is_object()) {
    const Json code = response.value("status_code", Json());
    if (!code.is_number_integer()) return std::nullopt;
    status = code.get<int64_t>();
    const Json body = response.value("body", Json());
    const Json error = body.is_object() ? body.value("error", Json()) : Json();
    by_id = by_id || (status == 400 && error.is_object() && error.value("code", Json()) == "duplicate_custom_id");
  }
  if (response.is_object() && status != 200 && (status < 400 || status >= 500)) return false;
  (by_id ? answered->ids : answered->custom_ids).insert((by_id ? line["id"] : custom_id).get<std::string>());
  return true;
}

// One run writes a file, however many are started. Error: another one does.
Status lock_output(const Descriptor& file, const std::string& path) {
  struct stat held{}, named{};
  const bool locked = flock(file.number(), LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;  // some disks have no locks
  // The file that was locked may have been replaced in between.
  const bool same = fstat(file.number(), &held) == 0 && stat(path.c_str(), &named) == 0 &&
                    held.st_dev == named.st_dev && held.st_ino == named.st_ino;
  if (locked && same) return Status::ok();
  return Status::error(path +
                       ": another run of situ batch writes this file; --resume goes on with it once that run has "
                       "ended");
}

// Cuts a torn last line, and takes lines out that are to be done again: `output`, which is locked, is then another
// file.
Status clean_output(const std::string& path, Descriptor* output, Answered* answered) {
  std::error_code error;
  const fs::path file = fs::canonical(path, error);
  if (error) return Status::error(path + ": cannot be read: " + error.message());
  const std::string part = file.string() + ".part";
  Result<Lines> lines = open_lines(file.string());
  if (!lines.is_ok()) return lines.status();
  Descriptor kept(open(part.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0666));
  if (kept.number() < 0) return Status::error(failure(part, "cannot be written"));
  bool changed = false;
  for (int64_t number = 1; !lines->ended();) {
    const std::optional<Lines::Line> line = lines->next();
    if (!line) {
      SITU_RETURN_IF_ERROR(lines->read_more(path));
      continue;
    }
    const std::optional<bool> stays = line->whole ? keeps(line->text, answered) : std::optional(false);
    if (!stays) {
      unlink(part.c_str());
      return Status::error(path + ": line " + std::to_string(number) + " is no output of a batch");
    }
    if (*stays) SITU_RETURN_IF_ERROR(write_all(kept.number(), line->text + "\n", part));
    changed = changed || !*stays;
    ++number;
  }
  if (!changed) {
    unlink(part.c_str());
    return Status::ok();
  }
  struct stat facts{};
  if (stat(file.c_str(), &facts) == 0) static_cast<void>(fchmod(kept.number(), facts.st_mode & 07777));
  SITU_RETURN_IF_ERROR(lock_output(kept, part));
  if (fsync(kept.number()) != 0 || rename(part.c_str(), file.c_str()) != 0)
    return Status::error(failure(path, "cannot be replaced"));
  *output = std::move(kept);
  return Status::ok();
}

class Batch {
 public:
  Batch(const BatchArguments& arguments, Model& model, Lines input, Descriptor output, Answered answered)
      : a_(arguments),
        model_(model),
        input_(std::move(input)),
        output_(std::move(output)),
        answered_before_(std::move(answered)),
        wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    fs::path folder = fs::path(a_.model);
    if (!folder.has_filename()) folder = folder.parent_path();
    model_name_ = folder.filename().string();
  }

  // Error: a file cannot be read or written.
  Status run();
  bool output_failed() const { return output_failed_; }
  Json stats(double seconds) const;

 private:
  // A line whose answers are not all there.
  struct Live {
    std::string id;
    std::optional<std::string> custom_id;
    const serve::Protocol* protocol;
    serve::Ask ask;
    std::vector<Request> requests;
    std::vector<std::optional<Ticket>> tickets;  // of requests that were submitted and are not over
    std::vector<std::optional<Generation>> results;
    size_t submitted = 0, over = 0;
  };

  Status take_line(const Lines::Line& line);
  Status take_lines();
  Status embed(const std::string& id, const std::optional<std::string>& custom_id, const Json& body);
  Status submit(Live& live, bool* room);
  Status harvest();
  Status look_at(Live& live, bool* done);
  Status put(const std::string& id, const std::optional<std::string>& custom_id, int status, Json body);
  Status put_line(const Json& line);
  Status refuse(const std::string& id, const std::optional<std::string>& custom_id, const Refusal& refusal) {
    const serve::ErrorText error = serve::protocol_of("").error(refusal, "");
    return put(id, custom_id, error.status, Json::parse(error.json));
  }
  Status wait(bool for_input);
  void show_progress(bool last);

  const BatchArguments& a_;
  Model& model_;
  Lines input_;
  Descriptor output_;
  const Answered answered_before_;
  Descriptor wake_;
  std::atomic<bool> woken_{false};
  std::string model_name_;
  std::deque<std::unique_ptr<Live>> live_;
  int64_t running_ = 0;  // requests
  bool output_failed_ = false;
  std::unordered_set<std::string> custom_ids_;
  int64_t number_ = 0, lines_ = 0, skipped_ = 0, answers_ = 0, refused_ = 0;
  const bool progress_ = isatty(STDERR_FILENO) == 1;
  Clock::time_point shown_{};
};

Status Batch::put_line(const Json& line) {
  Status written =
      write_all(output_.number(), line_of(line) + "\n", a_.output == kStandard ? "standard output" : a_.output);
  output_failed_ = !written.is_ok();
  return written;
}

Status Batch::put(const std::string& id, const std::optional<std::string>& custom_id, int status, Json body) {
  ++(status == 200 ? answers_ : refused_);
  const std::string request_id = "req_" + serve::protocol_of("/v1/completions").new_id().substr(5);
  return put_line({{"id", id},
                   {"custom_id", custom_id ? Json(*custom_id) : Json()},
                   {"response", {{"status_code", status}, {"request_id", request_id}, {"body", std::move(body)}}},
                   {"error", nullptr}});
}

Status Batch::take_line(const Lines::Line& line) {
  ++number_;
  const std::string id = "batch_req_" + std::to_string(number_);
  if (!line.too_long && line.text.find_first_not_of(" \t\r") == std::string::npos) return Status::ok();
  ++lines_;
  const auto invalid = [&](const std::string& what) {
    if (answered_before_.has(id, std::nullopt)) {
      ++skipped_;
      return Status::ok();
    }
    ++refused_;
    return put_line({{"id", id},
                     {"custom_id", nullptr},
                     {"response", nullptr},
                     {"error", {{"code", "invalid_json"}, {"message", "line " + std::to_string(number_) + what}}}});
  };
  if (line.too_long) return invalid(" has more than " + std::to_string(kLongestLine) + " bytes");
  std::optional<Refusal> inside;
  const serve::OrRefusal<Json> read = serve::parse_body(line.text, &inside);
  if (const Refusal* refusal = std::get_if<Refusal>(&read)) return invalid(": " + refusal->message);
  const Json& request = std::get<Json>(read);
  const auto field = [&](const char* name) { return request.value(name, Json()); };
  using Kind = Refusal::Kind;
  std::optional<std::string> custom_id;
  if (field("custom_id").is_string()) custom_id = field("custom_id").get<std::string>();
  constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
  if (inside && (!custom_id || custom_id->find(kReplacement) != std::string::npos))
    return invalid(": " + inside->message);
  const bool first = custom_id && custom_ids_.insert(*custom_id).second;
  if (answered_before_.has(id, first ? custom_id : std::nullopt)) {
    ++skipped_;
    return Status::ok();
  }
  const auto missing_or = [&](const char* name) { return field(name).is_null() ? Kind::kMissing : Kind::kType; };
  if (!custom_id) return refuse(id, custom_id, {missing_or("custom_id"), "custom_id", "custom_id should be a string"});
  if (!first) return refuse(id, custom_id, {Kind::kDuplicate, "custom_id", "an earlier line has the same custom_id"});
  const std::string url = field("url").is_string() ? field("url").get<std::string>() : "";
  const bool answers = url == "/v1/chat/completions" || url == "/v1/completions";
  const serve::Protocol* protocol = answers ? serve::reading_protocol(url) : nullptr;
  const bool embeds = field("url") == serve::kEmbeddingsUrl;
  if (!protocol && !embeds)
    return refuse(id, custom_id,
                  {Kind::kNoPath, "url", "url should be /v1/chat/completions, /v1/completions or /v1/embeddings"});
  if (field("method") != "POST") return refuse(id, custom_id, {Kind::kMethod, "method", "method should be POST"});
  const Json body = field("body");
  if (!body.is_object()) return refuse(id, custom_id, {missing_or("body"), "body", "body should be an object"});
  if (inside) return refuse(id, custom_id, *inside);
  if (embeds) return embed(id, custom_id, body);
  serve::OrRefusal<serve::Ask> ask = protocol->read(body, model_, {nullptr, a_.strict});
  if (const Refusal* refusal = std::get_if<Refusal>(&ask)) return refuse(id, custom_id, *refusal);
  serve::OrRefusal<std::vector<Request>> requests = serve::requests_of(std::get<serve::Ask>(ask));
  if (const Refusal* refusal = std::get_if<Refusal>(&requests)) return refuse(id, custom_id, *refusal);
  auto live = std::make_unique<Live>();
  live->id = id;
  live->custom_id = custom_id;
  live->protocol = protocol;
  live->ask = std::move(std::get<serve::Ask>(ask));
  live->requests = std::move(std::get<std::vector<Request>>(requests));
  live->tickets.resize(live->requests.size());
  live->results.resize(live->requests.size());
  live_.push_back(std::move(live));
  return Status::ok();
}

// Between the steps of those that run.
Status Batch::embed(const std::string& id, const std::optional<std::string>& custom_id, const Json& body) {
  const serve::OrRefusal<std::string> name = serve::model_of(body);
  if (const Refusal* refusal = std::get_if<Refusal>(&name)) return refuse(id, custom_id, *refusal);
  const std::string& given = std::get<std::string>(name);
  int64_t tokens = 0;
  serve::OrRefusal<Json> answer =
      serve::answer_embeddings(model_, body, given.empty() ? model_name_ : given, a_.strict, &tokens);
  if (const Refusal* refusal = std::get_if<Refusal>(&answer)) return refuse(id, custom_id, *refusal);
  return put(id, custom_id, 200, std::move(std::get<Json>(answer)));
}

// As many of its requests as there is room for.
Status Batch::submit(Live& live, bool* room) {
  while (live.submitted < live.requests.size()) {
    *room = running_ < a_.max_running;
    if (!*room) return Status::ok();
    Request request = live.requests[live.submitted];
    request.interactive = false;
    request.options.prefix_cache = a_.reuse;
    Result<Ticket> ticket = model_.submit(std::move(request));
    if (!ticket.is_ok() && ticket.status().code() == Code::kBusy && running_ > 0) {
      *room = false;
      return Status::ok();
    }
    if (!ticket.is_ok()) {
      const Refusal refusal = serve::refusal_of(live.ask, ticket.status());
      for (std::optional<Ticket>& t : live.tickets) running_ -= t.has_value();
      const Status written = refuse(live.id, live.custom_id, refusal);
      live.tickets.clear();
      live.over = live.submitted = live.requests.size();
      return written;
    }
    ticket->on_ready([this] {
      constexpr uint64_t kOne = 1;
      if (!woken_.exchange(true)) static_cast<void>(!write(wake_.number(), &kOne, sizeof kOne));
    });
    live.tickets[live.submitted++].emplace(std::move(*ticket));
    ++running_;
  }
  return Status::ok();
}

// Takes what has ended of a line, and writes its answer when all has.
Status Batch::look_at(Live& live, bool* done) {
  for (size_t i = 0; i < live.tickets.size(); ++i) {
    std::optional<Ticket>& ticket = live.tickets[i];
    if (!ticket) continue;
    while (ticket->poll()) continue;
    if (!ticket->ended()) continue;
    Result<Generation> result = ticket->result();
    ticket.reset();
    --running_;
    ++live.over;
    if (const std::optional<Refusal> refusal = serve::refusal_of(live.ask, result)) {
      for (std::optional<Ticket>& t : live.tickets) running_ -= t.has_value();
      live.tickets.clear();
      *done = true;
      return refuse(live.id, live.custom_id, *refusal);
    }
    live.results[i] = std::move(*result);
  }
  *done = live.over == live.requests.size();
  if (!*done || live.tickets.empty()) return Status::ok();
  const int64_t now =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  const serve::Envelope envelope{
      live.protocol->new_id(),      now, live.ask.model.empty() ? model_name_ : live.ask.model, {}, {},
      serve::fingerprint_of(model_)};
  return put(live.id, live.custom_id, 200, serve::whole_of(model_, *live.protocol, live.ask, envelope, live.results));
}

Status Batch::harvest() {
  for (auto live = live_.begin(); live != live_.end();) {
    bool done = false;
    SITU_RETURN_IF_ERROR(look_at(**live, &done));
    live = done ? live_.erase(live) : live + 1;
  }
  return Status::ok();
}

Status Batch::wait(bool for_input) {
  if (for_input && input_.ready()) return Status::ok();
  pollfd waited[] = {{wake_.number(), POLLIN, 0},
                     {interrupt_descriptor(), POLLIN, 0},
                     {for_input ? input_.descriptor() : -1, POLLIN, 0}};
  if (poll(waited, 3, 1000) < 0) return Status::ok();  // a signal
  if (waited[0].revents != 0) {
    uint64_t count = 0;
    static_cast<void>(!read(wake_.number(), &count, sizeof count));
    woken_ = false;
  }
  return waited[2].revents != 0 ? input_.read_more(a_.input) : Status::ok();
}

// Lines that are there already, as long as there is room for their requests: so that these begin in the same step.
Status Batch::take_lines() {
  constexpr std::chrono::milliseconds kTogether{100};
  const Clock::time_point start = Clock::now();
  const auto has_room = [&] {
    int64_t requests = running_;
    for (const std::unique_ptr<Live>& l : live_)
      requests += std::ssize(l->requests) - static_cast<int64_t>(l->submitted);
    return requests < a_.max_running;
  };
  while (!input_.ended() && Clock::now() - start < kTogether && !is_interrupted() && has_room()) {
    if (const std::optional<Lines::Line> line = input_.next()) {
      SITU_RETURN_IF_ERROR(take_line(*line));
      continue;
    }
    pollfd ready{input_.descriptor(), POLLIN, 0};
    if (poll(&ready, 1, 0) <= 0) break;
    SITU_RETURN_IF_ERROR(input_.read_more(a_.input));
  }
  return Status::ok();
}

Status Batch::run() {
  while (!is_interrupted()) {
    SITU_RETURN_IF_ERROR(harvest());
    SITU_RETURN_IF_ERROR(take_lines());
    bool room = true;
    for (size_t i = 0; i < live_.size() && room; ++i) SITU_RETURN_IF_ERROR(submit(*live_[i], &room));
    SITU_RETURN_IF_ERROR(harvest());
    show_progress(false);
    if (input_.ended() && live_.empty()) break;
    SITU_RETURN_IF_ERROR(wait(room && running_ < a_.max_running && !input_.ended()));
  }
  show_progress(true);
  return Status::ok();
}

void Batch::show_progress(bool last) {
  constexpr std::chrono::milliseconds kSometimes{200};
  if (!progress_ || (!last && Clock::now() - shown_ < kSometimes)) return;
  shown_ = Clock::now();
  std::fprintf(stderr, "\r%lld lines read, %lld answered, %lld refused, %lld running%s", static_cast<long long>(lines_),
               static_cast<long long>(answers_), static_cast<long long>(refused_), static_cast<long long>(running_),
               last ? "\n" : "  ");
  std::fflush(stderr);
}

Json Batch::stats(double seconds) const {
  const Stats s = model_.stats();
  return {{"lines", lines_},
          {"answered", answers_},
          {"refused", refused_},
          {"steps", s.steps},
          {"rows", s.rows},
          {"prompt_tokens", s.prompt_tokens},
          {"answer_tokens", s.answer_tokens},
          {"cached_tokens", s.cached_tokens},
          {"preemptions", s.preemptions},
          {"slots", s.slots},
          {"slots_free", s.slots_free},
          {"bytes_copied", s.bytes_copied},
          {"peak_rss_mib", peak_rss_mib()},
          {"wall_s", seconds}};
}

// The output is there for whoever reads it while it grows.
Result<Descriptor> open_output(const BatchArguments& a, Answered* answered) {
  if (a.output == kStandard) {
    if (a.resume) return Status::error("--resume goes on with the file of -o, and the output is standard output");
    return Descriptor(STDOUT_FILENO, false);
  }
  std::error_code unknown;
  if (a.input != kStandard && fs::equivalent(a.input, a.output, unknown))
    return Status::error(a.output + ": is the input; the output is another file");
  if (fs::is_directory(a.output, unknown)) return Status::error(a.output + ": is a folder");
  Descriptor output(open(a.output.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  if (output.number() < 0) return Status::error(Code::kNoRoom, failure(a.output, "cannot be written"));
  if (!fs::is_regular_file(a.output, unknown)) return output;
  SITU_RETURN_IF_ERROR(lock_output(output, a.output));
  if (fs::file_size(a.output, unknown) == 0) return output;
  if (!a.resume) return Status::error(a.output + ": is not empty; --resume goes on with it");
  SITU_RETURN_IF_ERROR(clean_output(a.output, &output, answered));
  return output;
}

}  // namespace

void add_batch_options(CLI::App& command, BatchArguments& a) {
  add_model(command, a);
  command.add_option("file", a.input, "Requests, JSON lines; - is standard input")->required();
  command.add_option("-o,--output", a.output, "Answers, in the order in which they finish")
      ->type_name("FILE")
      ->default_str(a.output);
  command.add_flag("--resume", a.resume, "Go on with an output that an earlier run left");
  command.add_option("--max-running", a.max_running, "Most requests that run at once")
      ->check(whole(1, int64_t{1} << 20))
      ->default_str(std::to_string(a.max_running));
  command.add_option("--stats", a.stats, "Write counts and times to this file, one JSON object")->type_name("FILE");
  command.add_flag("--strict", a.strict, "Refuse names that no body knows; else they are ignored");
  add_prefix_cache_option(command, a.reuse, "Options");
  add_load_options(command, a);
}

int batch(BatchArguments a) {
  Result<Lines> input = open_lines(a.input);
  if (!input.is_ok()) return fail(input.status().message());
  leave_on_interrupt();
  Answered answered;
  Result<Descriptor> output = open_output(a, &answered);
  if (!output.is_ok())
    return fail(output.status().message(), output.status().code() == Code::kNoRoom ? kFailed : kRefused);
  const std::string typed = a.model;
  int code = find_model(a, "batch");
  if (code != kDone) return code;
  std::optional<Model> model = load_model(a, &code);
  if (!model) return code;
  if (code = check_use(*model, typed, {Use::kText, Use::kEncoderDecoder, Use::kEmbeddings}); code != kDone) return code;
  a.model = typed;
  note_interrupts(true);
  const Clock::time_point start = Clock::now();
  Json stats;
  {
    Batch work(a, *model, std::move(*input), std::move(*output), std::move(answered));
    if (const Status done = work.run(); !done.is_ok()) {
      if (!work.output_failed()) return fail(done.message());
      return a.output == kStandard ? fail_output() : fail(done.message(), kFailed);
    }
    stats = work.stats(std::chrono::duration<double>(Clock::now() - start).count());
  }
  if (!a.stats.empty())
    if (const Status written = write_file(a.stats, line_of(stats) + "\n"); !written.is_ok())
      return fail(written.message(), kFailed);
  return is_interrupted() ? kInterrupted : kDone;
}

}  // namespace situ::cli
