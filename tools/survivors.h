// SPDX-License-Identifier: Apache-2.0
/* `run --explain`: which tokens of a prompt the model still holds, and which entry stands for which, as
 * coloured text, as a page, or as JSON. */
#ifndef FREETOKEN_TOOLS_SURVIVORS_H
#define FREETOKEN_TOOLS_SURVIVORS_H

#include <stdbool.h>

#include "freetoken/freetoken.h"

/* Whether a text names a file this can write: it ends in .html or .json. */
bool survivors_is_file(const char *path);
/* Shows what the session holds of its tokens: on stderr when path is NULL or "", else into the file.
 * Reports and returns an exit status, STATUS_GO_ON when done. */
int survivors_show(const ftk_session *s, const ftk_model *m, const char *path);

#endif
