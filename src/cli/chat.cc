// situ chat: a conversation in the terminal. Each turn is the whole conversation by the model's chat template; what it
// has in common with earlier turns is state that is kept (GenerateOptions::prefix_cache), so that /undo and /regen cost
// nothing either. Images are encoded again for each reply.
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "cli/commands.h"
#include "cli/interrupts.h"
#include "cli/models.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "cli/terminal.h"
#include "pipelines/media_tags.h"
#include "text/json_file.h"

namespace situ::cli {
namespace {

enum class Input { kLine, kInterrupted, kEnd };

// Lines of standard input. Control-C ends the line that is being typed, and not the program.
class LineReader {
 public:
  Input next(std::string* line) {
    for (size_t looked_at = 0;;) {
      if (const size_t end = typed_.find('\n', looked_at); end != std::string::npos) {
        *line = typed_.substr(0, end);
        typed_.erase(0, end + 1);
        return Input::kLine;
      }
      looked_at = typed_.size();
      pollfd wanted[] = {{STDIN_FILENO, POLLIN, 0}, {interrupt_descriptor(), POLLIN, 0}};
      if (poll(wanted, 2, -1) < 0 && errno != EINTR) return Input::kEnd;
      if (is_interrupted() || wanted[1].revents != 0) {
        take_interrupt();
        typed_.clear();
        return Input::kInterrupted;
      }
      if (wanted[0].revents == 0) continue;
      char bytes[4096];
      const ssize_t size = read(STDIN_FILENO, bytes, sizeof bytes);
      if (size < 0 && (errno == EINTR || errno == EAGAIN)) continue;
      if (size > 0) {
        typed_.append(bytes, static_cast<size_t>(size));
        continue;
      }
      *line = std::exchange(typed_, std::string());  // the last one has no end
      return line->empty() ? Input::kEnd : Input::kLine;
    }
  }

 private:
  std::string typed_;
};

constexpr const char* kHelp =
    "/regen        another reply to the last message (the same one with --greedy)\n"
    "/undo         forget the last message and its reply\n"
    "/image FILE   a png, jpeg, webp or gif of the next message, before its text (may be repeated, in order)\n"
    "/system TEXT  the system message from now on; none without TEXT\n"
    "/clear        forget all messages\n"
    "/save FILE    the conversation as JSON\n"
    "/load FILE    a conversation that was saved\n"
    "/exit         leave; so does Ctrl-D\n"
    "A line that ends in \\ goes on in the next. Ctrl-C ends a reply.\n";

class Conversation {
 public:
  Conversation(Model& model, const RunArguments& arguments)
      : model_(model),
        options_(arguments.generate),
        terminal_(isatty(STDIN_FILENO) && isatty(STDOUT_FILENO)),
        colours_(isatty(STDERR_FILENO) && !std::getenv("NO_COLOR")) {
    options_.prefix_cache = PrefixReuse::kAll;
    if (arguments.system) set_system(*arguments.system);
  }

  // What the program ends with: 2 where a reply broke off in an error.
  int run() {
    std::string message;
    while (flush_output()) {
      const Input input = read_message(&message);
      if (input == Input::kEnd) break;
      if (input == Input::kInterrupted) {
        std::printf("\n(/exit or Ctrl-D leaves)\n");
        continue;
      }
      if (message == "/exit") break;
      if (message.empty()) continue;
      const Status done = message[0] == '/' ? command(message) : say(message);
      if (!done.is_ok()) fail(done.message());
    }
    return broken_off_ ? kRefused : kDone;
  }

 private:
  // One message: lines that end in a backslash go on in the next.
  Input read_message(std::string* message) {
    message->clear();
    for (bool more = true; more;) {
      if (terminal_) std::printf(message->empty() ? "\033[1m> \033[0m" : "\033[1m. \033[0m");
      std::fflush(stdout);
      std::string line;
      const Input input = lines_.next(&line);
      if (input == Input::kEnd && !message->empty()) return Input::kLine;
      if (input != Input::kLine) return input;
      more = line.ends_with('\\');
      if (more) line.back() = '\n';
      *message += line;
    }
    return Input::kLine;
  }

  void set_system(const std::string& text) {
    if (!messages_.empty() && messages_[0].role == "system") messages_.erase(messages_.begin());
    if (!text.empty()) messages_.insert(messages_.begin(), Message::of_text("system", text));
  }

  Status command(const std::string& line) {
    const size_t space = line.find(' ');
    const std::string name = line.substr(0, space), rest = space == std::string::npos ? "" : line.substr(space + 1);
    if (name == "/help")
      std::fputs(kHelp, stdout);
    else if (name == "/regen")
      return regenerate();
    else if (name == "/undo")
      return undo();
    else if (name == "/system")
      set_system(rest);
    else if (name == "/image")
      return add_image(rest);
    else if (name == "/clear")
      clear();
    else if (name == "/save")
      return save(rest);
    else if (name == "/load")
      return load(rest);
    else
      return Status::error("'" + name + "' is no command; /help lists them");
    return Status::ok();
  }

  void clear() {
    std::erase_if(messages_, [](const Message& m) { return m.role != "system"; });
    next_images_.clear();
  }

  // An image that cannot be read is told of at once, and not when the message is sent.
  Status add_image(const std::string& file) {
    if (file.empty()) return Status::error("/image needs the name of a file");
    Prompt alone;
    alone.parts = {Part::of_file(Part::Kind::kImage, file), Part::of_ids({0})};
    const Result<Prompt> read = model_.read(std::move(alone));
    if (!read.is_ok()) return read.status();
    next_images_.push_back(Part::of_file(Part::Kind::kImage, file));
    return Status::ok();
  }

  Status say(const std::string& text) {
    Message message{"user", std::exchange(next_images_, {})};
    message.parts.push_back(Part::of_text(text));
    messages_.push_back(std::move(message));
    const Status done = reply();
    if (!done.is_ok()) messages_.pop_back();
    return done;
  }

  Status regenerate() {
    if (messages_.empty() || messages_.back().role != "assistant")
      return Status::error("there is no reply to make anew");
    const Message before = messages_.back();
    messages_.pop_back();
    if (options_.seed) ++*options_.seed;  // the same one would say the same again
    const Status done = reply();
    if (!done.is_ok()) messages_.push_back(before);
    return done;
  }

  Status undo() {
    if (messages_.empty() || messages_.back().role == "system") return Status::error("there is nothing to forget");
    if (messages_.back().role == "assistant") messages_.pop_back();
    if (!messages_.empty() && messages_.back().role == "user") messages_.pop_back();
    return Status::ok();
  }

  // The text of a message; its other parts are images, in front.
  static const std::string& text_of(const Message& m) { return m.parts.back().text; }

  Result<Prompt> read(const std::vector<Message>& messages) const {
    bool images = false;
    for (const Message& m : messages) images = images || m.parts.size() > 1;
    for (const Message& m : messages)
      if (!images) SITU_RETURN_IF_ERROR(check_media_tags(model_, text_of(m), {.sounds = true}, "/"));
    return model_.read(Prompt(messages));
  }

  // The newest messages that leave room for a reply, and the system message. The oldest turns leave, which is said
  // once; /save has them.
  Result<Prompt> read_what_fits() {
    const int64_t context = model_.facts().context_length,
                  reply = std::min({options_.max_new_tokens.value_or(128), int64_t{256}, context / 4});
    std::vector<Message> messages = messages_;
    for (;;) {
      Result<Prompt> prompt = read(messages);
      const bool fits = prompt.is_ok() && static_cast<int64_t>(prompt->ids().size()) + reply <= context;
      const bool too_long = prompt.is_ok() || prompt.status().code() == Code::kContextExceeded;
      if (fits || !too_long || !drop_oldest(&messages)) return prompt;
      if (!std::exchange(told_of_leaving_, true))
        std::fprintf(stderr, "situ: note: the conversation fills the context of %lld tokens: its oldest turns leave\n",
                     static_cast<long long>(context));
    }
  }

  // The oldest message and what answers it; false: the last message and the system's are left.
  static bool drop_oldest(std::vector<Message>* messages) {
    const auto first = messages->begin() + (messages->front().role == "system" ? 1 : 0);
    auto next = first + 1;
    while (next < messages->end() && next->role != "user") ++next;
    if (next >= messages->end()) return false;
    messages->erase(first, next);
    return true;
  }

  Status reply() {
    const Status unsaid = Status::error("interrupted before the reply began; the message is forgotten");
    const Result<Prompt> prompt = read_what_fits();
    if (!prompt.is_ok()) {
      take_interrupt();
      return prompt.status().code() == Code::kInterrupted ? unsaid : prompt.status();
    }
    ShownAnswer out;
    Waiting waiting(prompt_line(model_, static_cast<int64_t>(prompt->ids().size())));
    Result<Generation> g = model_.generate(*prompt, options_, [&](const Event& t) {
      waiting.stop();
      out.write(t);
      return flush_output();
    });
    waiting.stop();
    take_interrupt();
    out.finish();
    std::printf("\n");
    std::fflush(stdout);
    if (!g.is_ok()) return g.status();
    if (g->output_ids.empty() && g->finish_reason == FinishReason::kCancelled) return unsaid;
    messages_.push_back(Message::of_text("assistant", g->text));
    messages_.back().reasoning = g->reasoning;
    if (g->finish_reason == FinishReason::kError) {
      fail(g->error);
      broken_off_ = true;
    }
    if (!noted_)
      for (const std::string& note : g->notes) std::fprintf(stderr, "situ: note: %s\n", one_line(note).c_str());
    noted_ = true;
    if (g->text.empty())
      std::fprintf(stderr, "situ: note: the reply is empty: the model %s\n",
                   g->reasoning.empty() ? "ended it at once" : "thought up to its end");
    const double rate = g->decode_ms_per_token > 0 ? 1000.0 / g->decode_ms_per_token : 0;
    const std::string seed = g->seed ? ", seed " + std::to_string(*g->seed) : "";
    std::fprintf(stderr,
                 "%s[%zu prompt tokens, %lld of them kept, + %zu new: prefill %.0f ms, decode %.1f tokens/s, copied "
                 "%.0f B/token%s]%s\n",
                 colours_ ? "\033[2m" : "", prompt->ids().size(), static_cast<long long>(g->cached_tokens),
                 g->output_ids.size(), g->prefill_ms, rate, g->bytes_copied_per_token, seed.c_str(),
                 colours_ ? "\033[0m" : "");
    return Status::ok();
  }

  Status save(const std::string& path) const {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const Message& m : messages_) {
      list.push_back({{"role", m.role}, {"content", text_of(m)}});
      for (const Part& p : std::span(m.parts).first(m.parts.size() - 1)) list.back()["images"].push_back(p.path);
    }
    if (path.empty()) return Status::error("/save needs the name of a file");
    std::ofstream file(path);
    file << list.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
    file.close();
    return file ? Status::ok() : Status::error("'" + path + "' cannot be written");
  }

  Status load(const std::string& path) {
    if (path.empty()) return Status::error("/load needs the name of a file");
    std::error_code unreadable;
    if (std::filesystem::is_fifo(path, unreadable)) return Status::error(path + ": cannot be read: it is no file");
    const Result<std::string> text = read_file(path);
    if (!text.is_ok()) return text.status();
    const Result<nlohmann::json> parsed = parse_json(*text, path);
    const nlohmann::json list = parsed.is_ok() ? *parsed : nlohmann::json();
    const auto are_names = [](const nlohmann::json& files) {
      return files.is_array() &&
             std::all_of(files.begin(), files.end(), [](const nlohmann::json& f) { return f.is_string(); });
    };
    const auto is_message = [&](const nlohmann::json& m) {
      return m.is_object() && m.contains("role") && m.contains("content") && m["role"].is_string() &&
             m["content"].is_string() && (!m.contains("images") || are_names(m["images"]));
    };
    if (!list.is_array() || !std::all_of(list.begin(), list.end(), is_message))
      return Status::error("'" + path + "' is no conversation: a JSON array of objects with \"role\" and \"content\"");
    messages_.clear();
    for (const auto& m : list) {
      Message& message = messages_.emplace_back(Message{m["role"], {}});
      for (const std::string& file : m.value("images", std::vector<std::string>()))
        message.parts.push_back(Part::of_file(Part::Kind::kImage, file));
      message.parts.push_back(Part::of_text(m["content"]));
    }
    return Status::ok();
  }

  Model& model_;
  LineReader lines_;
  GenerateOptions options_;
  std::vector<Message> messages_;  // of each: images, then one text
  std::vector<Part> next_images_;  // of the next message
  const bool terminal_, colours_;
  bool noted_ = false;  // Generation::notes were shown
  bool told_of_leaving_ = false;
  bool broken_off_ = false;  // a reply was
};

}  // namespace

void add_chat_options(CLI::App& command, RunArguments& a) {
  constexpr int64_t kReply = 1024;
  add_model(command, a);
  command.add_option("--system", a.system, "System message")->type_name("TEXT");
  a.generate.max_new_tokens = kReply;
  add_generate_options(command, a);
  add_load_options(command, a, true);
  add_draft_tokens(command, a);
}

int chat(RunArguments a) {
  if (const Status resolved = resolve_arguments(a); !resolved.is_ok()) return fail(resolved.message());
  const std::string typed = a.model;
  int code = find_model(a, "chat");
  if (code != kDone) return code;
  std::optional<Model> model = load_model(a, &code);
  if (!model) return code;
  if (code = check_use(*model, typed, {Use::kText, Use::kEncoderDecoder}); code != kDone) return code;
  if (!model->tokenizer().is_there()) return fail(model->tokenizer().encode("").status().message());
  if (!model->tokenizer().has_chat_template())
    return fail(typed + ": the model has no chat template; situ run takes plain prompts: situ run " + typed +
                " \"PROMPT\"");
  draw_as_chat(*model, &a.generate);
  model->interrupt_when(note_interrupts(false));
  return Conversation(*model, a).run();
}

}  // namespace situ::cli
