"""Which plans in use are told of before they end? Neither those that are short nor those that another plan follows."""

from dealer_server.rules.notices.ending_plans import SHORTEST

TOLD_OF = f"""plan_use_status = 'STARTED' AND plan_use_end_at IS NOT NULL
    AND plan_use_end_at - plan_use_start_at >= interval '{SHORTEST.days} days' AND NOT cancelled
    AND NOT EXISTS (SELECT FROM jsonb_array_elements(plans) plan
        WHERE plan ->> 'mode' = 'QUEUE' AND plan ->> 'begun_at' IS NULL AND plan ->> 'cancelled' IS NULL)"""
"""SQL: whether a row of profile is one."""
