// SPDX-License-Identifier: Apache-2.0
/* One file over http or https, resumable. */
#ifndef FREETOKEN_TOOLS_DOWNLOAD_H
#define FREETOKEN_TOOLS_DOWNLOAD_H

/* Brings `url` to `path`. Until it is complete the bytes are in PATH.part, and PATH.part.tag holds
 * the server's entity tag; the next call goes on from there if the server's file is still the
 * same, and starts afresh if not. Reports and returns an exit status. */
int download(const char *url, const char *path);

#endif
