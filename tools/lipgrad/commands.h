#pragma once

#include <string>

namespace CLI {
class App;
}

// The subcommands of the lipgrad program, one file each.
namespace lipgrad::cli {

// Exit codes; CLI11's own errors (unknown flags, bad values) are `usage`.
enum Exit : int { success = 0, failure = 1, usage = 2, interrupted = 130 };

// Adds the subcommand; its callback puts the exit code into `exit`.
void add_completion(CLI::App& app, int& exit);
void add_convert(CLI::App& app, int& exit);
void add_doctor(CLI::App& app, int& exit);
void add_eval(CLI::App& app, int& exit);
void add_gradcheck(CLI::App& app, int& exit);
void add_inspect(CLI::App& app, int& exit);
void add_predict(CLI::App& app, int& exit);
void add_rates(CLI::App& app, int& exit);
void add_summary(CLI::App& app, int& exit);
void add_sweep(CLI::App& app, int& exit);
void add_train(CLI::App& app, int& exit);

}  // namespace lipgrad::cli
