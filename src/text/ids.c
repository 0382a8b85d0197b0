// SPDX-License-Identifier: Apache-2.0
/* The growing list of ids: see ids.h. */
#include "text/ids.h"

#include "base/memory.h"

ftk_status ftki_ids_add(ftki_ids *list, ftk_token id, ftk_error *e) {
    if (list->n == list->room) {
        size_t room = list->room ? list->room * 2 : 256;
        ftk_token *larger = ftki_realloc(list->ids, room, sizeof *larger);
        if (!larger) return ftki_fail(e, FTK_OUT_OF_MEMORY, "no memory for %zu token ids", room);
        list->ids = larger;
        list->room = room;
    }
    list->ids[list->n++] = id;
    return FTK_OK;
}
