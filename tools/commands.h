// SPDX-License-Identifier: Apache-2.0
/* The sub-commands. Each gets the words after its name and returns an exit status. */
#ifndef FREETOKEN_TOOLS_COMMANDS_H
#define FREETOKEN_TOOLS_COMMANDS_H

typedef int (*command_fn)(int argc, char **argv);

#define COMMAND_LIST(X)                                                     \
    X(run, "complete a text, answer a question, or chat")                   \
    X(bench, "measure prefill and decode speed and memory")                 \
    X(eval, "measure perplexity, agreement, and what reduction costs")      \
    X(tune, "find what a model can leave out, and write it as a profile")   \
    X(advise, "say whether token reduction pays for the prompts you have")  \
    X(classify, "name what pictures, sounds and texts show")                \
    X(embed, "turn pictures, sounds and texts into vectors")                \
    X(inspect, "show what a GGUF file holds and whether it would load")     \
    X(tokenize, "turn text into token ids and back")                        \
    X(quantize, "write a copy of a model with smaller weights")             \
    X(pull, "bring a model by name, address or path")                       \
    X(doctor, "show what this machine offers and what slows it")

#define COMMAND_DECLARE_(name, summary) int cmd_##name(int argc, char **argv);
COMMAND_LIST(COMMAND_DECLARE_)
#undef COMMAND_DECLARE_

#endif
